import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  adminConfig,
  ConfigError,
  demoConfig,
  engineConfig,
  type Environment,
  facadeConfig,
  migrateConfig,
  publisherConfig,
  startConfig,
  verifierConfig,
  workerConfig,
} from '#runtime/config';

const url = 'postgres://role:secret@127.0.0.1:5432/svc';
const vkey = (name: string): string => `${name}+0a1b2c3d+${'A'.repeat(43)}=`;
const facade = { LOG_VKEY: vkey('example.org/log'), SNAPSHOT_VKEY: vkey('example.org/snapshot') };
const publisher = { DATABASE_URL: url, LOG_KEY_FILE: 'log.pem', SNAPSHOT_KEY_FILE: 'snapshot.pem' };

function problemsOf(read: () => unknown): readonly string[] {
  try {
    read();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

describe('the operations listener', () => {
  const read = (env: Environment) => workerConfig({ DATABASE_URL: url, AEP_KEY_FILE: 'k', ...env });

  it('is disabled by default, and listens on the loopback interface unless an address is set', () => {
    expect(read({}).ops).toEqual({ kind: 'none' });
    expect(read({ OPS_PORT: '' }).ops).toEqual({ kind: 'none' });
    expect(read({ OPS_PORT: '0' }).ops).toEqual({ kind: 'listener', port: 0, bind: '127.0.0.1' });
    const elsewhere = { OPS_PORT: '9464', OPS_BIND: '0.0.0.0' };
    expect(read(elsewhere).ops).toEqual({ kind: 'listener', port: 9464, bind: '0.0.0.0' });
  });

  it.each(['x', '-1', '65536'])('rejects OPS_PORT=%s and names the setting', (OPS_PORT) => {
    expect(problemsOf(() => read({ OPS_PORT })).join()).toMatch(/^OPS_PORT must be/);
  });
});

describe('configuration', () => {
  const single: [string, (env: Environment) => unknown][] = [
    ['engine', engineConfig],
    ['worker', workerConfig],
    ['verifier', verifierConfig],
    ['publisher', publisherConfig],
    ['admin', (env) => adminConfig('admin', env)],
    ['migrate', migrateConfig],
  ];

  it.each(single)('%s fails without DATABASE_URL and names it', (_, read) => {
    for (const env of [{}, { DATABASE_URL: '' }, { DATABASE_URL: '  ' }]) {
      expect(problemsOf(() => read(env))).toContainEqual(
        expect.stringMatching(/^DATABASE_URL is not set: name the Postgres database/),
      );
    }
    expect(problemsOf(() => read({ DATABASE_URL: 'mysql://x' }))).toContainEqual(
      expect.stringMatching(/^DATABASE_URL must be a URL like postgres:/),
    );
  });

  it('reports every problem in one error', () => {
    const problems = problemsOf(() =>
      engineConfig({
        REDIS_URL: 'http://x',
        ENGINE_PORT: '70000',
        ADMISSIONS_PAUSED: 'open',
        LOG_LEVEL: 'loud',
      }),
    );
    expect(problems.map((problem) => problem.split(' ')[0])).toEqual([
      'DATABASE_URL',
      'REDIS_URL',
      'ENGINE_PORT',
      'ADMISSIONS_PAUSED',
      'LOG_LEVEL',
    ]);
  });

  it('accepts one Redis server or a cluster, and explains what is wrong with other addresses', () => {
    const problems = (REDIS_URL: string) =>
      problemsOf(() => engineConfig({ DATABASE_URL: url, REDIS_URL }));
    const good = [
      'redis://:secret@127.0.0.1:6379/2',
      'rediss://user:secret@cache.example',
      'redis+cluster://cache.example:6379',
      'redis://:p%2C@a,redis://b:7000,redis://[::1]:7001',
    ];
    for (const REDIS_URL of good) {
      expect(engineConfig({ DATABASE_URL: url, REDIS_URL }).redisUrl).toBe(REDIS_URL);
    }
    const bad: [string, RegExp][] = [
      ['http://a', /^REDIS_URL must be a URL like redis:/],
      ['redis://', /^REDIS_URL must be a URL like redis:/],
      ['redis://a,', /^REDIS_URL must be a URL like redis:/],
      ['redis://a, redis://b', /^REDIS_URL must be a URL like redis:/],
      ['redis://:hunter2%@a,redis://b', /^REDIS_URL must be a URL like redis:/],
      ['redis://a,rediss://b', /one scheme for all nodes/],
      ['redis://:hunter2@a,redis://:hunter3@b', /one user and password/],
      ['redis://a/1,redis://b/1', /must not have a database number/],
      ['redis+cluster://a?family=6', /options, for a cluster/],
    ];
    for (const [REDIS_URL, say] of bad) {
      expect(problems(REDIS_URL)).toEqual([expect.stringMatching(say)]);
      expect(problems(REDIS_URL).join()).not.toContain('hunter');
    }
  });

  it('reads the variables that are set', () => {
    const given = {
      DATABASE_URL: url,
      REDIS_URL: 'rediss://a:6379,rediss://b:6379',
      LISTEN_ADDRESS: '0.0.0.0',
      ENGINE_PORT: '0',
      RATE_LIMIT: '50',
      MAX_QUEUED_ADMISSIONS: '7',
      ADMISSIONS_PAUSED: 'true',
      SHUTDOWN_DELAY: '10s',
      SHUTDOWN_TIMEOUT: '25s',
      LOG_LEVEL: 'debug',
    };
    expect(engineConfig(given)).toMatchObject({
      redisUrl: 'rediss://a:6379,rediss://b:6379',
      listenAddress: '0.0.0.0',
      enginePort: 0,
      rateLimit: 50,
      maxQueuedAdmissions: 7,
      admissionsPaused: true,
      drain: { delayMs: 10_000, deadlineMs: 25_000 },
      logLevel: 'debug',
    });
  });

  it('reads one or several keys of a log during a rotation', () => {
    const [one, two] = [vkey('example.org/a,log'), vkey('example.org/b')];
    expect(facadeConfig({ ...facade, LOG_VKEY: one }).logVkey).toEqual([one]);
    expect(facadeConfig({ ...facade, LOG_VKEY: `${one},${two}` }).logVkey).toEqual([one, two]);
    expect(engineConfig({ DATABASE_URL: url, LOG_VKEY: `${one},${two}` })).toMatchObject({
      logVkey: one,
      logRetiredVkeys: [two],
    });
    expect(
      publisherConfig({ ...publisher, LOG_ORIGIN: 'a/log', LOG_RETIRED_VKEYS: `${one},${two}` }),
    ).toMatchObject({
      logRetiredVkeys: [one, two],
      snapshotRetiredVkeys: [],
    });
    for (const LOG_VKEY of [`${one},`, `${one} ${two}`, `${one};${two}`]) {
      expect(problemsOf(() => facadeConfig({ ...facade, LOG_VKEY }))).toHaveLength(1);
    }
  });

  describe('log name', () => {
    it('rejects the default with an external database', () => {
      for (const LOG_ORIGIN of [undefined, '', 'svc.local/log']) {
        const env = { ...publisher, LOG_ORIGIN };
        expect(problemsOf(() => publisherConfig(env))).toEqual([
          expect.stringMatching(/^LOG_ORIGIN .*choose a log name in your own domain/),
        ]);
        expect(problemsOf(() => startConfig({ DATABASE_URL: url, LOG_ORIGIN }))).toHaveLength(1);
      }
    });
  });

  describe('public API server', () => {
    it('requires both pinned keys', () => {
      expect(problemsOf(() => facadeConfig({}))).toEqual([
        expect.stringMatching(/^LOG_VKEY is not set: pin/),
        expect.stringMatching(/^SNAPSHOT_VKEY is not set: pin/),
      ]);
      expect(problemsOf(() => facadeConfig({ ...facade, LOG_VKEY: 'nonsense' }))).toHaveLength(1);
    });

    it('ignores database, queue and secrets in the environment', () => {
      const config = facadeConfig({
        ...facade,
        DATABASE_URL: url,
        REDIS_URL: 'redis://:hunter2@x',
        AEP_KEY_FILE: '/keys/aep',
        LOG_KEY_FILE: '/keys/log',
        SNAPSHOT_KEY_FILE: '/keys/snapshot',
      });
      expect(JSON.stringify(config)).not.toMatch(/postgres:|redis:|\/keys\//);
    });

    it('reads a directory or a URL', () => {
      expect(facadeConfig(facade)).toMatchObject({
        snapshotDir: resolve('.data/public'),
        snapshotUrl: null,
        publicPort: 8081,
      });
      expect(facadeConfig({ ...facade, SNAPSHOT_URL: 'https://example.org/s/' })).toMatchObject({
        snapshotDir: null,
        snapshotUrl: 'https://example.org/s',
      });
      for (const url of ['file:///x', 'x', 'https://u:p@example.org', 'https://example.org/?a']) {
        expect(problemsOf(() => facadeConfig({ ...facade, SNAPSHOT_URL: url }))).toEqual([
          'SNAPSHOT_URL must be an http or https URL without a user, a query or a fragment',
        ]);
      }
    });
  });

  describe('PUBLIC_URL', () => {
    const urlFrom = (env: Environment) => engineConfig({ DATABASE_URL: url, ...env }).publicUrl;

    it.each([
      [{ PUBLIC_URL: 'https://registry.example/' }, 'https://registry.example'],
      [{ PUBLIC_URL: 'https://registry.example/v//' }, 'https://registry.example/v'],
      [{ PUBLIC_URL: 'https://bücher.example' }, 'https://xn--bcher-kva.example'],
      [{ PUBLIC_PORT: '9000' }, 'http://127.0.0.1:9000'],
      [{ PUBLIC_PORT: '0', PUBLIC_URL: 'http://a:1' }, 'http://a:1'],
    ])('reads %o', (env, expected) => {
      expect(urlFrom(env)).toBe(expected);
    });

    it.each([
      'registry.example',
      'ftp://registry.example',
      'https://user:secret@registry.example',
      'https://registry.example/?a=b',
      'https://registry.example/#a',
      `https://registry.example/${'a'.repeat(200)}`,
    ])('refuses %s', (PUBLIC_URL) => {
      expect(problemsOf(() => urlFrom({ PUBLIC_URL }))).toEqual([
        expect.stringMatching(/^PUBLIC_URL must be an http or https URL/),
      ]);
      expect(problemsOf(() => startConfig({ PUBLIC_URL }))).toHaveLength(1);
    });
  });

  describe('durations', () => {
    const validFor = (SNAPSHOT_TTL: string): number =>
      publisherConfig({ ...publisher, LOG_ORIGIN: 'a/log', SNAPSHOT_TTL }).snapshotTtl;

    it.each([
      ['15m', 900_000],
      ['900s', 900_000],
      ['900', 900_000],
      ['900000ms', 900_000],
      ['2h', 7_200_000],
      ['1d', 86_400_000],
    ])('reads %s', (text, ms) => {
      expect(validFor(text)).toBe(ms);
    });

    it.each(['15 m', '1.5h', '-5m', '0', '1s', '31d', 'soon', '1e3'])('reject %s', (text) => {
      expect(problemsOf(() => validFor(text))).toEqual([
        expect.stringMatching(/^SNAPSHOT_TTL must be a duration/),
      ]);
    });
  });

  it('isolates a demo from the environment', () => {
    const config = demoConfig('/tmp/demo', {
      DATABASE_URL: url,
      REDIS_URL: 'redis://x',
      DATA_DIR: 'y',
    });
    expect(config).toMatchObject({
      databaseUrl: null,
      redisUrl: null,
      dataDir: '/tmp/demo',
      enginePort: 0,
      publicPort: 0,
      logLevel: 'error',
    });
  });
});

const DATABASE_URL = 'postgres://svc_engine:hunter2@127.0.0.1:5432/svc';
const REDIS_URL = 'redis://:hunter3@127.0.0.1:6379';

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
