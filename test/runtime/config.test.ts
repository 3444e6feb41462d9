import { chmod, chown, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  ConfigError,
  demoConfig,
  engineConfig,
  type Environment,
  facadeConfig,
  monitorConfig,
  opsPortsOf,
  publisherConfig,
  startConfig,
} from '#runtime/config';
import { logKey } from '../fixtures/public-log.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';

const dir = await testFolder();
const url = 'postgres://role:secret@127.0.0.1:5432/svc';
const [LOG, FORMER] = [logKey('a/log').vkey, logKey('a/log').vkey];
const RETIRED = { vkey: FORMER, from_size: 7 };

const facade = (env: Environment) => facadeConfig({ ...pinning(LOG), ...env });
const monitor = (env: Environment) =>
  monitorConfig({ MONITOR_URL: '/log', ...pinning(LOG), ...env });
const engine = (env: Environment) => engineConfig({ DATABASE_URL: url, ...env });
const publisher = (env: Environment) => {
  const key = { LOG_KEY_FILE: 'log.pem' };
  return publisherConfig({ DATABASE_URL: url, ...key, LOG_ORIGIN: 'a/log', ...env });
};

function problemsOf(read: () => unknown): readonly string[] {
  try {
    read();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

describe('configuration', () => {
  it('reports every problem in one error', () => {
    const wrong = { REDIS_URL: 'http://x', ADMISSIONS_PAUSED: 'open', LOG_LEVEL: 'loud' };
    const problems = problemsOf(() => engineConfig(wrong));
    const names = ['DATABASE_URL', 'REDIS_URL', 'ADMISSIONS_PAUSED', 'LOG_LEVEL'];
    expect(problems.map((problem) => problem.split(' ')[0])).toEqual(names);
  });

  it.each<[(env: Environment) => object, Environment, object]>([
    [engine, { REDIS_URL: 'redis://:secret@a:6379/2' }, { redisUrl: 'redis://:secret@a:6379/2' }],
    [
      engine,
      { DATABASE_URL: 'postgres://u@a:1,b:2/svc' },
      { databaseUrl: 'postgres://u@a:1,b:2/svc' },
    ],
    [engine, { REDIS_URL: 'redis+cluster://a:6379' }, { redisUrl: 'redis+cluster://a:6379' }],
    [engine, { REDIS_URL: 'redis://:p%2C@a,redis://[::1]:7001' }, {}],
    [engine, { REDIS_URL: '', ENGINE_PORT: '' }, { redisUrl: null, enginePort: 8080 }],
    [engine, { ENGINE_PORT: '0', RATE_LIMIT: '50' }, { enginePort: 0, rateLimit: 50 }],
    [engine, { ADMISSIONS_PAUSED: 'true' }, { admissionsPaused: true }],
    [engine, { SHUTDOWN_TIMEOUT: '25s' }, { drain: { delayMs: 0, deadlineMs: 25_000 } }],
    [engine, { OPS_PORT: '' }, { ops: { port: null } }],
    [engine, { OPS_PORT: '0' }, { ops: { port: 0, bind: '127.0.0.1' } }],
    [engine, { PUBLIC_URL: 'https://a.example/v//' }, { publicUrl: 'https://a.example/v' }],
    [
      engine,
      { PUBLIC_URL: 'https://bücher.example' },
      { publicUrl: 'https://xn--bcher-kva.example' },
    ],
    [engine, { PUBLIC_PORT: '9000' }, { publicUrl: 'http://127.0.0.1:9000' }],
    [engine, { PUBLIC_PORT: '0', PUBLIC_URL: 'http://a:1' }, { publicUrl: 'http://a:1' }],
    [facade, pinning(LOG, [RETIRED]), { pins: [LOG, RETIRED] }],
    [facade, {}, { snapshotPlace: resolve('.data/public'), snapshotUrl: null, publicPort: 8081 }],
    [
      facade,
      { SNAPSHOT_URL: 'https://a.org/s/' },
      { snapshotPlace: null, snapshotUrl: 'https://a.org/s' },
    ],
    [facade, { SNAPSHOT_STORE: 's3://b-1/a/b' }, { snapshotPlace: 's3://b-1/a/b' }],
    [publisher, { MAX_MERGE_DELAY: '2m' }, { maxMergeDelay: 120 }],
    [publisher, { SNAPSHOT_TTL: '15m' }, { snapshotTtl: 900_000 }],
    [publisher, { SNAPSHOT_TTL: '900' }, { snapshotTtl: 900_000 }],
    [
      monitor,
      { MONITOR_WATCH: 'a.json, b c.json,', MONITOR_MIRRORS: ' ,/m' },
      { monitorWatch: ['a.json', 'b c.json'], monitorMirrors: ['/m'] },
    ],
    [startConfig, {}, { logOrigin: 'svc.local/log', aepKeyFile: resolve('.data/aep-key.pem') }],
  ])('of %o is parsed as %o', (read, env, expected) => {
    expect(read(env)).toMatchObject(expected);
  });

  it.each<[(env: Environment) => object, Environment, RegExp]>([
    [engine, { DATABASE_URL: 'mysql://x' }, /^DATABASE_URL must be a URL like postgres:/],
    [
      engine,
      { DATABASE_URL: 'postgres://u@a:1,b:99999/svc' },
      /^DATABASE_URL must be a URL like postgres:/,
    ],
    ...['u:hunter2%zz@a', 'u:12#hunter2@a', 'u:12/hunter2@a', 'u:12?x@a', 'u:hunter2@[::1]:1'].map(
      (login): [typeof engine, Environment, RegExp] => [
        engine,
        { DATABASE_URL: `postgres://${login}/svc` },
        /^DATABASE_URL must be .* with a percent-encoded user and password, a host that is a name/,
      ],
    ),
    [
      engine,
      { REDIS_URL: 'redis://:hunter2%zz@a' },
      /^REDIS_URL must be .* with a percent-encoded/,
    ],
    [engine, { REDIS_URL: 'redis://u:12#hunter2@a' }, /^REDIS_URL must be a URL like redis:/],
    [engine, { DATABASE_URL: `"${url}"` }, /^DATABASE_URL is in quotes: remove the quotes$/],
    [publisher, { LOG_ORIGIN: `'a.example/log'` }, /^LOG_ORIGIN is in quotes/],
    [engine, { PUBLIC_URL: 'https://a.example?' }, /^PUBLIC_URL must be an http or https URL/],
    [engine, { RATE_LIMIT: '0' }, /^RATE_LIMIT must be from 1/],
    [engine, { MAX_QUEUED_ADMISSIONS: '1.5' }, /^MAX_QUEUED_ADMISSIONS must be a whole number/],
    [engine, { MAX_QUEUED_ADMISSIONS: '3' }, /^MAX_QUEUED_ADMISSIONS must be from 4/],
    [engine, { REDIS_URL: 'redis://' }, /^REDIS_URL must be a URL like redis:/],
    [engine, { REDIS_URL: 'redis://a/1x' }, /^REDIS_URL must end with a database number/],
    [engine, { REDIS_URL: 'redis://a, redis://b' }, /^REDIS_URL must be a URL like redis:/],
    [
      engine,
      { REDIS_URL: 'redis://:hunter2%@a,redis://b' },
      /^REDIS_URL must be a URL like redis:/,
    ],
    [engine, { REDIS_URL: 'redis://a,rediss://b' }, /one scheme for all nodes/],
    [engine, { REDIS_URL: 'redis://:hunter2@a,redis://:hunter3@b' }, /one user and password/],
    [engine, { REDIS_URL: 'redis://a/1,redis://b/1' }, /must not have a database number/],
    [engine, { REDIS_URL: 'redis+cluster://a?family=6' }, /options, for a cluster/],
    [
      publisher,
      { SNAPSHOT_STORE: 's3://b-1', SNAPSHOT_DIR: '/a' },
      /_STORE and SNAPSHOT_DIR are both/,
    ],
    [
      facade,
      { SNAPSHOT_STORE: 's3://b-1', SNAPSHOT_URL: 'http://a' },
      /_STORE and SNAPSHOT_URL are both/,
    ],
    [publisher, { SNAPSHOT_STORE: 'az://bucket' }, /^SNAPSHOT_STORE must be s3:/],
    [engine, { PUBLIC_PORT: '0' }, /^PUBLIC_URL is not set/],
    [engine, { PUBLIC_URL: `https://a.example/${'a'.repeat(200)}` }, /^PUBLIC_URL must be an http/],
    [facade, { PINS_FILE: '', DATA_DIR: '/x' }, /^PINS_FILE names \/x\/pins.json, which cannot be/],
    [facade, { PINS_FILE: '/etc/hostname' }, /which is not the output of "admin pins"/],
    [facade, pinning('a+0a1b2c3d+AA=='), /not usable: unusable vkey a/],
    [facade, pinning(LOG, [{ vkey: LOG, from_size: 1 }]), /not usable: two vkeys/],
    [
      facade,
      pinning(LOG, [{ ...RETIRED, size: 1 } as never]),
      /log retired 0 unknown member "size"/,
    ],
    [facade, { SNAPSHOT_URL: 'file:///x' }, /^SNAPSHOT_URL must be an http or https URL/],
    [monitor, { MONITOR_URL: 'ftp://a' }, /^MONITOR_URL must be an http or/],
    [
      monitor,
      { MONITOR_MIRRORS: 'https://a,https://u:hunter2@b' },
      /^MONITOR_MIRRORS must be an http or https URL/,
    ],
    [publisher, { LOG_KEY_FILE: '' }, /^LOG_KEY_FILE is not set/],
    [
      publisher,
      { LOG_ORIGIN: '' },
      /^LOG_ORIGIN is not set.* choose a log name in your own domain/,
    ],
    [publisher, { LOG_ORIGIN: 'svc.local/log' }, /^LOG_ORIGIN is svc.local\/log/],
    [publisher, { LOG_ORIGIN: 'a b' }, /^LOG_ORIGIN must be a name/],
    [publisher, { SNAPSHOT_TTL: '1s' }, /^SNAPSHOT_TTL must be a duration/],
    [publisher, { SNAPSHOT_TTL: '25h' }, /^SNAPSHOT_TTL must be a duration/],
    [startConfig, { DATABASE_URL: url }, /^LOG_ORIGIN is not set/],
  ])('of %o is rejected: %o', (read, env, problem) => {
    const problems = problemsOf(() => read(env));
    expect(problems).toEqual([expect.stringMatching(problem)]);
    expect(problems.join()).not.toContain('hunter');
  });

  it('ignores addresses that Kubernetes sets for services with the name of a setting', () => {
    const addresses = { ENGINE_PORT: 'tcp://10.0.0.1:8080', OPS_PORT: 'tcp://10.0.0.2:9464' };
    expect(engine(addresses)).toMatchObject({ enginePort: 8080, ops: { port: null } });
    expect(() => engine({ REDIS_URL: 'tcp://10.0.0.3:6379' })).toThrow('REDIS_URL');
  });

  it('rejects misspelt settings of any program by name, and ignores variables of other software', () => {
    const others = {
      PGHOST: 'a',
      ENGINE_HOST: 'a',
      SNAPSHOT_TTLL: ' ',
      ENGINES_PORT: 'tcp://10.0.0.1:8080',
      SVC_ENGINE_PORT_8080_TCP: 'tcp://10.0.0.1:8080',
    };
    const wrong = { SNAPSHOT_TTLS: '15m', MAX_QUEUD_ADMISIONS: '5', DATABASE_RUL: url };
    expect(problemsOf(() => engine({ ...others, ...wrong }))).toEqual([
      'SNAPSHOT_TTLS is not a setting: did you mean SNAPSHOT_TTL?',
      'MAX_QUEUD_ADMISIONS is not a setting: did you mean MAX_QUEUED_ADMISSIONS?',
      'DATABASE_RUL is not a setting: did you mean DATABASE_URL?',
    ]);
  });

  it('of a public API server contains no database, queue or secret from the environment', () => {
    const secrets = {
      DATABASE_URL: url,
      REDIS_URL: 'redis://:hunter2@x',
      AEP_KEY_FILE: '/keys/aep',
      LOG_KEY_FILE: '/keys/log',
      DATABASE_URL_FILE: '/nowhere',
    };
    expect(JSON.stringify(facade(secrets))).not.toMatch(/postgres:|redis:|\/keys\//);
  });

  it('rejects operations ports of child processes above 65535', () => {
    expect(() => opsPortsOf({ port: 65_532, bind: 'x' }, 5)).toThrow(
      'OPS_PORT is 65532, too high for 5 processes',
    );
    expect(opsPortsOf({ port: 65_531, bind: 'x' }, 5)).toHaveLength(5);
  });

  it('of a demo contains nothing from the environment', () => {
    const env = { DATABASE_URL: url, REDIS_URL: 'redis://x', DATA_DIR: 'y' };
    expect(demoConfig('/tmp/demo', env)).toMatchObject({
      databaseUrl: null,
      redisUrl: null,
      dataDir: '/tmp/demo',
      enginePort: 0,
      publicPort: 0,
      logLevel: 'error',
    });
  });
});

describe('*_FILE settings', () => {
  const file = async (name: string, content: string): Promise<string> => {
    const path = join(dir, name);
    await writeFile(path, content);
    await chmod(path, 0o400);
    return path;
  };

  it('ignore surrounding white space, and are rejected when the variable itself is also set', async () => {
    const DATABASE_URL_FILE = await file('database', ` ${url}\r\n`);
    expect(engineConfig({ DATABASE_URL_FILE }).databaseUrl).toBe(url);
    expect(problemsOf(() => engine({ DATABASE_URL_FILE }))).toEqual([
      'DATABASE_URL and DATABASE_URL_FILE are both set: keep one of them',
    ]);
  });

  it('are rejected when they name a file with a password that other users can read', async () => {
    const DATABASE_URL_FILE = await file('shared', url);
    // Changes owner and group, because a file that belongs to root and root's group would count as
    // private.
    if (process.getuid!() === 0) await chown(DATABASE_URL_FILE, 65_534, 65_534);
    for (const mode of [0o440, 0o640]) {
      await chmod(DATABASE_URL_FILE, mode);
      expect(engineConfig({ DATABASE_URL_FILE }).databaseUrl).toBe(url);
    }
    await chmod(DATABASE_URL_FILE, 0o444);
    expect(problemsOf(() => engineConfig({ DATABASE_URL_FILE }))).toEqual([
      expect.stringMatching(
        /^The file of DATABASE_URL_FILE .* has mode 0444: other users/,
      ) as string,
    ]);
  });

  it("report unusable files together with every other problem, never with a file's content", async () => {
    const empty = await file('empty', '\n');
    const env = {
      DATABASE_URL_FILE: await file('wrong', 'mysql://u:hunter2@host/db'),
      REDIS_URL_FILE: empty,
      LOG_LEVEL: 'loud',
    };
    expect(problemsOf(() => engineConfig(env))).toEqual([
      `REDIS_URL_FILE names ${empty}, which is empty`,
      expect.stringContaining(
        'DATABASE_URL must be a URL like postgres://user:password@host:5432/database',
      ),
      expect.stringMatching(/^LOG_LEVEL must be one of/) as string,
    ]);
  });
});
