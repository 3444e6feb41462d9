import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ConfigError, engineConfig, facadeConfig, startConfig } from '#runtime/config';

const DATABASE_URL = 'postgres://svc_engine:hunter2@127.0.0.1:5432/svc';
const REDIS_URL = 'redis://:hunter3@127.0.0.1:6379';
const vkey = (name: string): string => `${name}+0a1b2c3d+${'A'.repeat(43)}=`;

function problemsOf(read: () => unknown): readonly string[] {
  try {
    read();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

describe('*_FILE settings', () => {
  let dir: string;
  const file = async (name: string, content: string): Promise<string> => {
    const path = join(dir, name);
    await writeFile(path, content);
    await chmod(path, 0o400);
    return path;
  };
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'svc-config-'));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  it('trim white space around the value', async () => {
    const config = engineConfig({
      DATABASE_URL_FILE: await file('database', `${DATABASE_URL}\n`),
      REDIS_URL_FILE: await file('redis', ` ${REDIS_URL}\r\n`),
    });
    expect(config).toMatchObject({ databaseUrl: DATABASE_URL, redisUrl: REDIS_URL });
  });

  it('apply to start, which then runs no embedded database', async () => {
    const config = startConfig({
      DATABASE_URL_FILE: await file('owner', DATABASE_URL),
      LOG_ORIGIN: 'example.org/log',
    });
    expect(config.databaseUrl).toBe(DATABASE_URL);
  });

  it('supply the pinned keys of a public API server, which ignores other files', async () => {
    const config = facadeConfig({
      LOG_VKEY_FILE: await file('log', vkey('example.org/log')),
      SNAPSHOT_VKEY_FILE: await file('snapshot', vkey('example.org/snapshot')),
      DATABASE_URL_FILE: '/nowhere',
      REDIS_URL_FILE: '/nowhere',
    });
    expect(config).toMatchObject({
      logVkeys: [vkey('example.org/log')],
      snapshotVkeys: [vkey('example.org/snapshot')],
    });
  });

  it('are rejected together with the variable itself', async () => {
    const DATABASE_URL_FILE = await file('both', DATABASE_URL);
    expect(problemsOf(() => engineConfig({ DATABASE_URL, DATABASE_URL_FILE }))).toEqual([
      'DATABASE_URL and DATABASE_URL_FILE are both set: keep one of them',
    ]);
    expect(problemsOf(() => engineConfig({ DATABASE_URL, DATABASE_URL_FILE: ' ' }))).toEqual([]);
  });

  it('report missing, empty and unreadable files together with every other problem', async () => {
    const empty = await file('empty', '\n');
    const problems = problemsOf(() =>
      engineConfig({
        DATABASE_URL_FILE: join(dir, 'missing'),
        REDIS_URL_FILE: empty,
        LOG_VKEY_FILE: dir,
        LOG_LEVEL: 'loud',
      }),
    );
    expect(problems).toEqual([
      `DATABASE_URL_FILE names ${join(dir, 'missing')}, which cannot be read (ENOENT)`,
      `REDIS_URL_FILE names ${empty}, which is empty`,
      `LOG_VKEY_FILE names ${dir}, which cannot be read (EISDIR)`,
      expect.stringMatching(/^LOG_LEVEL must be one of/) as string,
    ]);
  });

  it('never appear in an error with their content', async () => {
    const DATABASE_URL_FILE = await file('wrong', 'mysql://u:hunter2@host/db');
    const problems = problemsOf(() => engineConfig({ DATABASE_URL_FILE }));
    expect(problems.join()).toMatch(/^DATABASE_URL must be a URL like postgres:/);
    expect(problems.join()).not.toContain('hunter2');
  });
});
