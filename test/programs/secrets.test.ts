import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeSecrets } from '#programs/secrets/make';
import { type ConfigError, migrateConfig, secretsConfig } from '#runtime/config';
import { loadSigningKey } from '#runtime/crypto/node';

describe('npm run secrets', () => {
  let directory: string;
  const make = (): Promise<string[]> =>
    makeSecrets(secretsConfig({ SECRETS_DIR: directory, LOG_ORIGIN: 'log.example.org/2026' }));
  const content = async (): Promise<Record<string, string>> => {
    const names = await readdir(directory);
    const texts = names.map(async (name) => [name, await readFile(join(directory, name), 'utf8')]);
    return Object.fromEntries(await Promise.all(texts)) as Record<string, string>;
  };
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'svc-secrets-'));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('creates all secrets once, and later only those that were removed', async () => {
    expect(await make()).toContain('log-key.pem');
    const first = await content();
    expect(await make()).toEqual([]);
    expect(await content()).toEqual(first);
    await rm(join(directory, 'worker-database-url'));
    expect(await make()).toEqual(['worker-database-url']);
    const { 'worker-database-url': changed, ...rest } = await content();
    const { 'worker-database-url': before, ...others } = first;
    expect(changed).not.toBe(before);
    expect(rest).toEqual(others);
  });

  it('makes only public files readable by other users', async () => {
    await make();
    for (const name of await readdir(directory)) {
      const { mode } = await stat(join(directory, name));
      const isPublic = /vkey$|public-key/.test(name);
      expect([name, (mode & 0o007) !== 0]).toEqual([name, isPublic]);
      expect(mode & 0o222).toBe(isPublic ? 0 : mode & 0o200);
    }
    expect(loadSigningKey(join(directory, 'aep-key.pem')).publicKey).toHaveLength(32);
  });

  it("passes the programs' passwords to the migration", async () => {
    await make();
    const file = (name: string): string => join(directory, `${name}-database-url`);
    const config = migrateConfig({
      DATABASE_URL_FILE: file('owner'),
      ROLE_URL_FILES: `${file('engine')}, ${file('worker')}`,
    });
    const texts = await content();
    expect(config.roleLogins).toEqual(
      ['engine', 'worker'].map((name) => ({
        role: `svc_${name}`,
        password: new URL(texts[`${name}-database-url`]!.trim()).password,
      })),
    );
    const wrong = [file('nobody'), join(directory, 'log.vkey')];
    expect(() =>
      migrateConfig({ DATABASE_URL_FILE: file('owner'), ROLE_URL_FILES: wrong.join(',') }),
    ).toThrow(
      expect.objectContaining({
        problems: [
          `ROLE_URL_FILES names ${wrong[0]}, which cannot be read (ENOENT)`,
          expect.stringContaining(`${wrong[1]}, which does not hold a URL`) as string,
        ],
      }) as ConfigError,
    );
  });
});
