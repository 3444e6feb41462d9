import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { PROGRAM_ROLES } from '#programs/migrate-database';
import { COMPOSE_FILE, interpolate, readCompose, type Service } from '../fixtures/compose/file.js';

const VARIABLES = {
  LOG_ORIGIN: 'log.example.org/2026',
  PUBLIC_URL: 'https://registry.example.org',
};
const compose = readCompose(VARIABLES);
const { services } = compose;
const all = Object.entries(services);
const ours = all.filter(([, { build }]) => build !== undefined);
const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher', 'facade'];
const service = (name: string): Service => {
  const found = services[name];
  if (found === undefined) throw new Error(`there is no service ${name}`);
  return found;
};
const reached = (name: string): string[] => service(name).networks ?? [];

describe('docker-compose.yml', () => {
  const parser = spawnSync('docker-compose', ['version'], { stdio: 'ignore' }).status === 0;
  it.skipIf(!parser && process.env['CI'] === undefined)('is accepted by docker compose', () => {
    const read = spawnSync('docker-compose', ['--file', COMPOSE_FILE, 'config', '--services'], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], ...VARIABLES },
    });
    // docker-compose 1.29 warns about settings that it ignores.
    expect([read.status, read.stderr]).toEqual([0, '']);
    const names = all.map(([name]) => name);
    expect(read.stdout.trim().split('\n').sort()).toEqual(names.sort());
  });

  it('requires every value that has no default, and names the file that sets it', () => {
    expect(() => readCompose({ PUBLIC_URL: 'x' })).toThrow(/LOG_ORIGIN is not set.*\.env/);
    expect(() => readCompose({ LOG_ORIGIN: 'x' })).toThrow(/PUBLIC_URL is not set.*\.env/);
    expect(interpolate('$$x ${A:-b} ${C:-d}', { A: 'e' })).toBe('$x e d');
    const example = readFileSync(join(packageRoot, 'deploy/env.example'), 'utf8');
    for (const name of Object.keys(VARIABLES))
      expect(example).toMatch(new RegExp(`^${name}=.`, 'm'));
  });

  it('reads only variables that deploy/env.example names, with the same defaults', () => {
    const example = readFileSync(join(packageRoot, 'deploy/env.example'), 'utf8');
    const used = readFileSync(COMPOSE_FILE, 'utf8').matchAll(/\$\{([A-Z_]+)(?::-([^}]*))?/g);
    // A digest is in docker-compose.yml only.
    const lines = [...used].map(([, name = '', fallback]) =>
      name in VARIABLES ? null : `#${name}=${name.endsWith('_IMAGE') ? '' : (fallback ?? '')}`,
    );
    const named = example.match(/^#[A-Z_]+=.*$/gm);
    expect([...new Set(lines)].filter((line) => line !== null).sort()).toEqual(named?.sort());
  });

  it('passes the trace settings in .env to the engine', () => {
    const given = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318',
      OTEL_TRACES_SAMPLER_ARG: '0.01',
    };
    expect(readCompose({ ...VARIABLES, ...given }).services['engine']?.environment).toMatchObject(
      given,
    );
  });

  it.each(all)(
    'restricts %s to a read-only file system, no capabilities, limited memory and an unprivileged user',
    (name, one) => {
      expect(one.read_only).toBe(true);
      expect(one.mem_limit).toMatch(/^\dg$/);
      expect(one.cap_drop).toEqual(['ALL']);
      expect(one.security_opt).toContain('no-new-privileges:true');
      expect(one.privileged).toBeUndefined();
      expect(one.image).toMatch(
        /^[^:]+:[^:]*\d[^:]*@sha256:[0-9a-f]{64}$|^svc-verification:local$/,
      );
      expect(one.image).not.toMatch(/latest/);
      const [uid = NaN, gid = NaN] = (one.user ?? '').split(':').map(Number);
      // Only the program that sets the owners of secrets runs as root, without a network.
      if (name === 'secrets') {
        expect([uid, one.network_mode, one.networks]).toEqual([0, 'none', undefined]);
        expect(one.cap_add).toEqual(['CHOWN', 'DAC_OVERRIDE']);
      } else {
        expect(one.cap_add).toBeUndefined();
        expect(uid).toBeGreaterThan(0);
        expect(gid).toBeGreaterThan(0);
      }
    },
  );

  it('runs each program as its own user', () => {
    expect(new Set(PROGRAMS.map((name) => service(name).user)).size).toBe(PROGRAMS.length);
  });

  it('gives each program its own database role, and the owner role only to migrate', () => {
    for (const [name, { secrets = [], environment = {} }] of ours) {
      const urls = secrets.filter((secret) => secret.endsWith('-database-url'));
      if (name === 'init') continue;
      const expected = ['facade', 'secrets', 'board', 'monitor', 'witness'].includes(name)
        ? []
        : [`${name}-database-url`];
      expect([name, urls]).toEqual([name, expected]);
      expect(environment['DATABASE_URL_FILE']).toBe(
        expected[0] === undefined ? undefined : `/run/secrets/${expected[0]}`,
      );
    }
    const urls = (service('init').secrets ?? []).filter((name) => name.endsWith('-database-url'));
    expect(urls.map((name) => name.replace(/^(\w+)-database-url$/, 'svc_$1')).sort()).toEqual(
      // The dashboard reads the queue in Valkey, and erasure is not set up by default.
      [
        ...PROGRAM_ROLES.filter((role) => !['svc_board', 'svc_erase'].includes(role)),
        'svc_owner',
      ].sort(),
    );
  });

  it('gives each signing key only to the program that signs with it', () => {
    const holders = (secret: string): string[] =>
      all.filter(([, { secrets = [] }]) => secrets.includes(secret)).map(([name]) => name);
    expect(holders('aep-key.pem')).toEqual(['worker']);
    expect(holders('log-key.pem')).toEqual(['publisher']);
    expect(holders('witness-key.pem')).toEqual(['witness']);
    expect(holders('redis-url')).toEqual(['engine', 'worker']);
    expect(holders('postgres-password')).toEqual(['postgres']);
    // `pins.json` contains only public keys.
    expect(service('facade').secrets).toEqual(['pins.json']);
    for (const [name, { secrets = [] }] of all) {
      for (const secret of secrets)
        expect([name, compose.secrets[secret]]).not.toContain(undefined);
    }
  });

  it('has no secret in an environment or a command', () => {
    for (const [name, { environment = {}, command = [] }] of all) {
      for (const [variable, value] of Object.entries(environment)) {
        const isSecret =
          /PASSWORD|SECRET(?!S_DIR)|TOKEN|DATABASE_URL|REDIS_URL|_KEY(?!_FILE|$)/.test(variable);
        if (isSecret)
          expect([name, variable, value]).toEqual([name, expect.stringMatching(/_FILES?$/), value]);
        expect([name, variable, value]).not.toContainEqual(expect.stringMatching(/:\/\/[^/]*@/));
      }
      expect([name, command.join(' ')]).not.toContainEqual(expect.stringMatching(/requirepass|@/));
    }
    for (const { file } of Object.values(compose.secrets)) {
      expect(file).toMatch(/^\.\/deploy\/secrets\/[\w.-]+$/);
    }
    const ignored = readFileSync(join(packageRoot, '.gitignore'), 'utf8').split('\n');
    expect(ignored).toEqual(expect.arrayContaining(['deploy/secrets/', '.env']));
    const image = readFileSync(join(packageRoot, '.dockerignore'), 'utf8').split('\n');
    expect(image).toContain('*');
    expect(image.filter((line) => /^!(deploy|\.env|\.git)/.test(line))).toEqual([]);
  });

  it('separates the network of the public API from the network of the registry', () => {
    const facade = new Set([...reached('facade'), ...reached('nginx')]);
    for (const name of [
      'postgres',
      'valkey',
      'engine',
      'worker',
      'verifier',
      'publisher',
      'admin',
    ]) {
      expect([name, reached(name).filter((network) => facade.has(network))]).toEqual([name, []]);
    }
    const queue = all.filter(([, { networks = [] }]) => networks.includes('queue'));
    expect(queue.map(([name]) => name)).toEqual(['valkey', 'engine', 'worker', 'board']);
    for (const network of [
      'database',
      'queue',
      'engines',
      'facade',
      'operations',
      'operations-public',
    ]) {
      expect([network, compose.networks[network]]).toEqual([network, { internal: true }]);
    }
    for (const [name, { networks, network_mode }] of all) {
      expect([name, networks === undefined]).toEqual([name, network_mode === 'none']);
    }
  });

  it('publishes two ports, by default on the loopback interface', () => {
    const published = all.filter(([, { ports, profiles }]) => ports && profiles === undefined);
    expect(published.map(([name, { ports }]) => [name, ports])).toEqual([
      ['balancer', ['127.0.0.1:8080:8080']],
      ['nginx', ['127.0.0.1:8081:8081']],
    ]);
    for (const [, { ports = [] }] of all) {
      for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:/);
    }
  });

  it('mounts the snapshot writable only for the publisher', () => {
    const mounts = all.flatMap(([name, { volumes = [] }]) =>
      volumes.filter((entry) => entry.startsWith('snapshot:')).map((entry) => [name, entry]),
    );
    expect(mounts).toEqual([
      ['fsck', 'snapshot:/srv/public:ro'],
      ['publisher', 'snapshot:/srv/public'],
      ['facade', 'snapshot:/srv/public:ro'],
    ]);
    for (const [name, { volumes = [] }] of all) {
      const bound = volumes.filter((entry) => /^[./]/.test(entry) && name !== 'secrets');
      for (const entry of bound)
        expect([name, entry]).toEqual([name, expect.stringMatching(/:ro(,\w+)?$/)]);
    }
  });

  it('keeps the state of a program in a volume that its user owns', () => {
    const dockerfile = readFileSync(join(packageRoot, 'Dockerfile'), 'utf8');
    for (const [name, setting] of [
      ['fsck', 'DATA_DIR'],
      ['monitor', 'MONITOR_DIR'],
      ['witness', 'WITNESS_DIR'],
    ] as const) {
      const { environment = {}, user = '', volumes } = service(name);
      const folder = environment[setting]!;
      expect(volumes).toContain(`${name}:${folder}`);
      const [uid, gid] = user.split(':');
      expect(dockerfile).toContain(`\nRUN install -d -o ${uid} -g ${gid} -m 0700 ${folder}\n`);
    }
  });

  it('checks the readiness of every program with tools that its image contains', () => {
    for (const name of [
      ...PROGRAMS,
      'board',
      'monitor',
      'witness',
      'postgres',
      'valkey',
      'nginx',
      'balancer',
    ]) {
      const test = service(name).healthcheck?.test ?? [];
      expect([name, test[0]]).toEqual([name, expect.stringMatching(/^CMD/)]);
      expect(test.join(' ')).not.toMatch(/curl|wget/);
      if (services[name]?.build !== undefined) {
        expect(test[1]).toBe('node');
        expect(test.join(' ')).toContain(`:${service(name).environment?.['OPS_PORT']}/readyz`);
      }
    }
  });

  it('configures Valkey for durability and without eviction', () => {
    expect(service('valkey').command?.join(' ')).toMatch(
      /--appendonly yes.*--maxmemory-policy noeviction/,
    );
  });
});

describe('Docker image', () => {
  const dockerfile = readFileSync(join(packageRoot, 'Dockerfile'), 'utf8');

  it('is built from pinned images and packages, and runs as an unprivileged user without build tools', () => {
    expect(dockerfile).toMatch(/^ARG NODE=node:\d+\.\d+\.\d+-bookworm-slim@sha256:[0-9a-f]{64}$/m);
    expect(dockerfile.match(/^FROM \S+/gm)).toEqual(Array(3).fill('FROM ${NODE}'));
    expect(dockerfile).toMatch(/npm ci --omit=dev --omit=optional --omit=peer --ignore-scripts/);
    const last = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
    expect(last).toMatch(/^USER 65534:65534$/m);
    expect(last).not.toMatch(/npm |COPY \. /);
  });
});
