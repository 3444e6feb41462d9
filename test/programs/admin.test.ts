import { spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/package-root';
import { COMMANDS } from '#programs/admin/main';
import { adminOn, adminWith, done, type AdminLine } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, TENANT } from '../fixtures/registry.js';

let db: TestDatabase;
let admin: AdminLine;
let person: AdminLine;
let folder: string;
beforeAll(async () => {
  db = await freshDatabase();
  await openRegistry(db);
  admin = adminOn(db);
  person = adminOn(db, { isTerminal: true });
  folder = mkdtempSync(join(tmpdir(), 'svc-admin-'));
});
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await db.drop();
});

const NOWHERE = adminWith({ DATABASE_URL: 'postgres://svc_admin:x@127.0.0.1:1/svc' });

describe('admin help', () => {
  it('lists every command', async () => {
    const { code, out } = await NOWHERE('help');
    expect(code).toBe(0);
    for (const { name } of COMMANDS) expect(out).toContain(`\n  ${name}`);
    expect((await NOWHERE('--help')).out).toBe(out);
  });

  it.each(COMMANDS.map(({ name }) => name))('of %s has a valid example', async (name) => {
    const command = COMMANDS.find((one) => one.name === name)!;
    const { code, out } = await NOWHERE(...name.split(' '), '--help');
    expect(code).toBe(0);
    expect(out).toContain(`npm run admin -- ${command.example}`);
    expect(command.example.startsWith(name)).toBe(true);
    for (const option of Object.keys(command.options ?? {})) expect(out).toContain(`--${option}`);
  });

  it('lists the commands of a group', async () => {
    const { code, out } = await NOWHERE('key', '--help');
    expect(code).toBe(0);
    expect(out).toContain('key rotate');
    expect(out).not.toContain('tenant create');
  });
});

describe('an invalid command line', () => {
  it.each([
    [[]],
    [['tenants']],
    [['tenant']],
    [['tenant', 'destroy', 'acme']],
    [['tenant', 'allow']],
    [['tenant', 'allow', 'acme', 'beta']],
    [['tenant', 'create', '-acme', 'sandbox']],
    [['tenant', 'create', 'acme', 'production']],
    [['tenant', 'limit', 'acme', '0']],
    [['tenant', 'limit', 'acme', 'many']],
    [['tenant', 'validity', 'acme', '1', '2', '3', '-4']],
    [['lane', 'open', 'Sandbox']],
    [['key', 'issue', 'acme']],
    [['key', 'issue', 'acme', '--review', '   ']],
    [['key', 'issue', 'acme', '--review', 'R\n1']],
    [['key', 'issue', 'acme', '--review', 'R', '--scopes', 'admit,root']],
    [['key', 'issue', 'acme', '--review', 'R', '--scopes', '']],
    [['key', 'issue', 'acme', '--review', 'R', '--expires-in', '0']],
    [['key', 'issue', 'acme', '--reviewed', 'R']],
    [['key', 'rotate', 'k3f9a2m4x7q1', '--overlap', '1.5']],
    [['key', 'revoke', 'not-a-key']],
    [['lane', 'open', 'sandbox', '--actor', '']],
    [['policy', 'activate', '0'.repeat(64), '--from', 'tomorrow']],
    [['policy', 'activate', '0'.repeat(64), '--from', '2026-02-30T00:00:00Z']],
    [['policy', 'activate', '0'.repeat(64), '--from', '2026-12-01T00:00:00']],
    [['policy', 'activate', '0'.repeat(64), '--from', '2062-12-01T00:00:00Z']],
    [['aep-key', 'compromise', 'k.pem']],
    [['aep-key', 'compromise', 'k.pem', '--from-index', '-1']],
    [['revoke', 'x', 'proof', '--reason', 'r']],
    [['audit', 'list', '--limit', '0']],
  ])('exits with 2 before any database is asked: %j', async (line: string[]) => {
    const { code, err, out } = await NOWHERE(...line);
    expect(code).toBe(2);
    expect(out + err).not.toMatch(/\n\s+at /);
  });

  it('is never quoted when it may contain a mistyped key', async () => {
    const { err } = await NOWHERE('key', 'revoke', 'svc_sk_k3f9a2m4x7q1_secretsecret');
    expect(err).not.toContain('secretsecret');
  });
});

describe('a rejected command', () => {
  it.each([
    [['tenant', 'allow', 'nobody'], 'unknown tenant nobody'],
    [['tenant', 'limit', 'nobody', '5'], 'unknown tenant nobody'],
    [['tenant', 'validity', 'nobody', '1', '1', '1', '1'], 'unknown tenant nobody'],
    [['key', 'list', 'nobody'], 'unknown tenant nobody'],
    [['key', 'revoke', 'k3f9a2m4x7q1'], 'unknown key k3f9a2m4x7q1'],
    [['key', 'rotate', 'k3f9a2m4x7q1'], 'unknown key k3f9a2m4x7q1'],
    [['key', 'expire', 'k3f9a2m4x7q1', '5'], 'unknown key k3f9a2m4x7q1'],
    [['tenant', 'create', TENANT, 'live'], 'which cannot change'],
    [['policy', 'put', '/nowhere'], '/nowhere cannot be read'],
    [['policy', 'put', '/etc/hostname'], 'not a directory'],
    [['policy', 'activate', 'abc'], 'is not the digest'],
    [['policy', 'activate', '0'.repeat(64)], 'policy list shows the stored sets'],
    [['policy', 'show', '0'.repeat(64)], 'policy list shows the stored sets'],
    [['policy', 'test', '/nowhere', '/nowhere'], '/nowhere cannot be read'],
    [['fixture', 'put', 'f', '/nowhere'], '/nowhere cannot be read'],
    [['fixture', 'put', 'f', '/etc'], 'is a directory'],
    [['aep-key', 'activate', '/nowhere'], '/nowhere cannot be read'],
    [
      ['aep-key', 'retire', `-${'A'.repeat(42)}`, '--confirm', `-${'A'.repeat(42)}`],
      'never activated',
    ],
    [['revoke', '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', 'proof', '--reason', 'r'], 'unknown proof'],
  ])('exits with 1 and says why: %j', async (line: string[], say: string) => {
    const { code, err, out } = await admin(...line);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(say);
    expect(err).not.toMatch(/\n\s+at |unexpected/);
  });

  it('names what is wrong with a file', async () => {
    const file = (name: string, text: string): string => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const p256 = file('p256.pem', privateKey.export({ format: 'pem', type: 'pkcs8' }).toString());
    for (const [line, say] of [
      [['aep-key', 'activate', p256], 'does not hold an Ed25519 key'],
      [['aep-key', 'activate', file('no.pem', 'x')], 'does not hold a PEM key'],
      [['fixture', 'put', 'f', file('bad.json', '{"a":1,"a":2}')], 'not a JSON document'],
      [
        ['policy', 'test', join(packageRoot, 'policy/default'), file('c.json', '{"name":1}')],
        'case 1',
      ],
      [['policy', 'test', join(packageRoot, 'policy/default'), file('empty.json', '')], 'no case'],
    ] as const) {
      const { code, err } = await admin(...line);
      expect(code).toBe(1);
      expect(err).toContain(say);
      expect(err).not.toContain('unexpected');
    }
  });

  it.each([
    ['the database is away', () => NOWHERE, /cannot be reached/],
    ['nothing is set', () => adminWith({}), /DATABASE_URL is not set/],
    [
      'the password is wrong',
      () => adminOn(db, { url: db.urlFor('svc_admin').replace(/:[^:@]+@/, ':no@') }),
      /rejected the password/,
    ],
    ['the role is another', () => adminOn(db, { url: db.urlFor('svc_worker') }), /as svc_admin/],
    ['the role is the owner', () => adminOn(db, { url: db.url }), /is a superuser/],
    [
      'the database is not there',
      () => adminOn(db, { url: db.urlFor('svc_admin').replace(/test_\w+/, 'nowhere') }),
      /no database of the name/,
    ],
    [
      'the database is empty',
      () => adminOn(db, { url: db.urlFor('svc_admin').replace(/test_\w+/, 'postgres') }),
      /run migrate/,
    ],
  ])('exits with 1 and says so when %s', async (_what, line, say) => {
    const { code, err } = await line()('tenant', 'list');
    expect(code).toBe(1);
    expect(err).toMatch(say);
    expect(err).not.toMatch(/\n\s+at |unexpected/);
  });

  it('reports startup errors like the other programs', () => {
    const at = (program: string, env: Record<string, string>) =>
      spawnSync(process.execPath, [join(packageRoot, 'dist/programs', `${program}.js`)], {
        env: { PATH: process.env['PATH'] ?? '', ...env },
        encoding: 'utf8',
        timeout: 20_000,
      });
    for (const [program, env, say] of [
      ['verifier', { DATABASE_URL: db.url }, /verifier: the database role .* is a superuser/],
      [
        'migrate',
        { DATABASE_URL: 'postgres://a:b@127.0.0.1:1/x' },
        /migrate: the database cannot be reached/,
      ],
      [
        'verifier',
        { DATABASE_URL: 'postgres://a:b@127.0.0.1:1/x' },
        /verifier: the database cannot be reached/,
      ],
      [
        'engine',
        { DATABASE_URL: db.urlFor('svc_engine').replace(/test_\w+/, 'postgres') },
        /engine: the database has no registry/,
      ],
    ] as const) {
      const { status, stderr } = at(program, env);
      expect(status).toBe(1);
      expect(stderr).toMatch(say);
      expect(stderr).not.toMatch(/\n?\s+at .*\.js|"stack"/);
    }
  });
});

describe('admin output', () => {
  it('lists tenants and environments', async () => {
    await done(admin('tenant', 'create', 'beta', 'live'));
    await done(admin('tenant', 'limit', 'beta', '25'));
    await done(admin('key', 'issue', 'beta', '--review', 'REV-1'));
    const tenants = (await done(admin('tenant', 'list'))) as unknown as unknown[];
    expect(tenants).toMatchObject([
      { tenant_id: TENANT, allowlisted: true, rate_limit: null },
      { tenant_id: 'beta', environment: 'live', allowlisted: false, rate_limit: 25, keys: 1 },
    ]);
    await done(admin('tenant', 'limit', 'beta', 'none'));
    expect(await done(admin('tenant', 'list'))).toMatchObject([{}, { rate_limit: null }]);
    expect(await done(admin('lane', 'list'))).toMatchObject([
      { environment: 'live', open: false },
      { environment: 'sandbox', open: true },
    ]);
  });

  it('is a table on a terminal, otherwise or on request JSON', async () => {
    const { out } = await person('tenant', 'list');
    expect(out).toMatch(/^tenant_id +environment +allowlisted/);
    expect((await person('tenant', 'list', '--json')).json).toHaveLength(2);
    expect((await person('lane', 'lock', 'live')).out).toMatch(
      /^environment {2}live\nopen +false\n$/,
    );
    expect((await person('fixture', 'list')).out).toBe('none\n');
  });

  it('includes the verifier key of a key file', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const file = join(folder, 'log.pem');
    writeFileSync(file, privateKey.export({ format: 'pem', type: 'pkcs8' }));
    const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
    const { code, json } = await NOWHERE('vkey', 'example.org/log', file);
    expect(code).toBe(0);
    expect(json).toEqual({ vkey: formatVkey(nativeSha256, 'example.org/log', raw) });
  });

  it('includes fixtures, which never change', async () => {
    const file = join(folder, 'fixture.json');
    writeFileSync(file, '{ "b": 1, "a": [2] }');
    const stored = await done(admin('fixture', 'put', 'chain-1', file));
    expect(stored).toMatchObject({ stored: true });
    expect(await done(admin('fixture', 'list'))).toMatchObject([
      { fixture_ref: 'chain-1', fixture_hash: stored['fixture_hash'], bytes: 15 },
    ]);
    writeFileSync(file, '{"a":[2],"b":2}');
    const { code, err } = await admin('fixture', 'put', 'chain-1', file);
    expect(code).toBe(1);
    expect(err).toContain('never change');
  });
});
