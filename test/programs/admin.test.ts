import { spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { table } from '#programs/admin/command';
import { formatVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { adminOn, adminWith, done } from '../fixtures/admin.js';
import { withoutTriggers } from '../fixtures/database.js';
import { APPEND_LOCK, holdLock } from '../fixtures/hold-lock.js';
import { TENANT } from '../fixtures/registry.js';
import { testKey } from '../fixtures/snapshot.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

const { db, admin, person } = await testRegistry();
const home = await testFolder();
const NOWHERE = 'postgres://svc_admin:x@127.0.0.1:1/svc';
const offline = adminWith({ DATABASE_URL: NOWHERE });
const DEFAULT_POLICY = join(packageRoot, 'policy', 'default');
const KEY_ID = 'k3f9a2m4x7q1';
const DASH_ID = `-${'A'.repeat(42)}`;
const NO_DIGEST = '0'.repeat(64);
/** The name of a key may contain a comma. */
const [VKEY, RETIRED] = [testKey(), testKey()].map(({ publicKey }) =>
  formatVkey(nativeSha256, 'log.example.org/a,b', publicKey),
);

describe('admin with an invalid command line', () => {
  it.each([
    [],
    ['tenants'],
    ['tenant'],
    ['tenant', 'allow', 'acme', 'beta'],
    ['tenant', 'create', '-acme', 'sandbox'],
    ['tenant', 'create', 'acme', 'production'],
    ['key', 'issue', 'acme'],
    ['key', 'issue', 'acme', '--review', '   '],
    ['key', 'issue', 'acme', '--review', 'R\n1'],
    ['key', 'issue', 'acme', '--review', 'R', '--scopes', 'admit,root'],
    ['key', 'issue', 'acme', '--review', 'R', '--expires-in', '0'],
    ['lane', 'open', 'sandbox', '--actor', ''],
    ['policy', 'activate', NO_DIGEST],
    ['policy', 'activate', NO_DIGEST, '--cases', 'c', '--from', '2026-02-30T00:00:00Z'],
    ['aep-key', 'compromise', 'k.pem', '--from-index', '-1', '--confirm', 'x'],
    ['aep-key', 'retire', '--unknown', '--confirm', 'x', 'k.pem'],
    ['revoke', 'x', 'proof', '--reason', 'r'],
    ['erase', '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', '--reason', 'r', '--confirm', 'other'],
    ['log-key', 'retire', 'log.example.org/2026+0a1b2c3d+AR', '--confirm', 'other'],
    ['log', 'end', 'log.example.org/2026', '--reason', 'r', '--confirm', 'other'],
    ['approver', 'retire', NO_DIGEST, '--confirm', 'other'],
  ])('exits with 2 before it connects to a database: %j', async (...line: string[]) => {
    const { code, err, out } = await offline(...line);
    expect(code).toBe(2);
    expect(out).toBe('');
    expect(err).not.toMatch(/\n\s+at |cannot be reached/);
  });

  it('does not quote the command line, which may contain a mistyped key', async () => {
    const { code, err } = await offline('key', 'revoke', 'svc_sk_k3f9a2m4x7q1_secretsecret');
    expect(code).toBe(2);
    expect(err).not.toContain('secretsecret');
  });
});

describe('admin with a command that fails', () => {
  it.for<[string[], string]>([
    [['tenant', 'allow', 'none'], 'unknown tenant none'],
    [['key', 'list', 'none'], 'unknown tenant none'],
    [['key', 'revoke', KEY_ID], `unknown key ${KEY_ID}`],
    [['tenant', 'create', TENANT, 'live'], 'which cannot change'],
    [['policy', 'put', '/etc/hostname'], 'not a directory'],
    [['policy', 'test', DEFAULT_POLICY, '/etc/hostname'], 'line 1 is not JSON'],
    [['aep-key', 'activate', '/etc/hostname'], 'does not hold a PEM key'],
    [['fixture', 'put', 'f', '/etc/hostname'], 'not a JSON document'],
    [['policy', 'activate', 'abc', '--cases', 'c'], 'is not the digest'],
    [['fixture', 'put', 'f', '/etc'], 'is a directory'],
    [['aep-key', 'retire', DASH_ID, '--confirm', DASH_ID], 'never activated'],
    [['revoke', '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', 'proof', '--reason', 'r'], 'unknown proof'],
    [['log', 'lost', '/nowhere', '--vkey', 'x'], '--vkey is not usable'],
    [['log', 'lost', '/nowhere', '--vkey', `${VKEY},${RETIRED}`], 'no file checkpoint'],
  ])('exits with 1 and the reason: %j', async ([line, reason]) => {
    const { code, err, out } = await admin(...line);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(reason);
    expect(err).not.toMatch(/\n\s+at |unexpected/);
  });

  const urlOf = (from: RegExp, to: string) => db.urlFor('svc_admin').replace(from, to);
  it.for<[string, string, RegExp]>([
    ['the password is wrong', urlOf(/:[^:@]+@/, ':no@'), /rejected the password/],
    ['the role is wrong', db.urlFor('svc_worker'), /as svc_admin/],
    ['the role is the owner', db.url, /is a superuser/],
    ['the database is missing', urlOf(/test_\w+/, 'nowhere'), /no database with the name/],
    ['the database is empty', urlOf(/test_\w+/, 'postgres'), /npm run admin -- init/],
  ])('exits with 1 and the reason when %s', async ([, url, reason]) => {
    const { code, err } = await adminOn(db, { url })('tenant', 'list');
    expect(code).toBe(1);
    expect(err).toMatch(reason);
    expect(err).not.toMatch(/\n\s+at |unexpected/);
  });

  it.for<[string, string, RegExp]>([
    ['no database is configured', '', /DATABASE_URL is not set/],
    ['the database is unreachable', NOWHERE, /cannot be reached/],
  ])('exits with 2 and the reason when %s', async ([, url, reason]) => {
    const { code, err } = await adminOn(db, { url })('tenant', 'list');
    expect(code).toBe(2);
    expect(err).toMatch(reason);
  });

  it.for([
    ['lock_timeout=200', 'another session held a lock'],
    ['statement_timeout=3000', 'a statement took too long'],
  ] as const)('exits with 1 and the reason and the next step after %s', async ([limit, reason]) => {
    const unlock = await holdLock(db.sql, APPEND_LOCK);
    const url = `${db.urlFor('svc_admin')}?${limit}`;
    const { code, err } = await adminOn(db, { url })('lane', 'lock', 'live');
    await unlock();
    expect(code).toBe(1);
    expect(err).toContain(reason);
    expect(err).toMatch(
      /rolled the transaction back \(canceling .* timeout\).*then repeat the command\.$/m,
    );
  });

  it('opens no environment whose row was deleted', async () => {
    const [row] = await db.sql`select * from svc.lane where environment = 'live'`;
    await withoutTriggers(db, `delete from svc.lane where environment = 'live'`);
    const { code, err, out } = await admin('lane', 'open', 'live');
    await withoutTriggers(db, (tx) => tx`insert into svc.lane ${tx(row!)}`);
    expect([code, out]).toEqual([1, '']);
    expect(err).toMatch(/no row of live, so it stays locked/);
  });

  it('exits with 2 and the next step when the connection is lost during a command', async () => {
    const unlock = await holdLock(db.sql, 'lock table svc.tenant in access exclusive mode');
    const reply = admin('tenant', 'list');
    await expect
      .poll(
        () => db.sql`select pg_terminate_backend(pid) from pg_stat_activity
          where application_name = 'svc-admin' and wait_event_type = 'Lock'
            and datname = current_database()`,
      )
      .toHaveLength(1);
    await unlock();
    const { code, err } = await reply;
    expect(code).toBe(2);
    expect(err).toMatch(/connection to the database was lost: .* Check whether the command took/);
  });

  it('names the command that shows whether a change took effect, when the answer to its commit is lost', async () => {
    const proxy = await TcpProxy.open(db.url, 'postgres');
    onTestFinished(() => proxy.close());
    const lost = proxy.set({ matches: (sql) => sql === 'commit', breaks: 'unanswered' });
    const url = proxy.urlFor(db.urlFor('svc_admin'));
    const { code, err } = await adminOn(db, { url })('lane', 'open', 'live', '--actor', 'unsure');
    await lost;
    expect(code).toBe(2);
    expect(err).toMatch(/ The command may have taken effect\. .*"npm run admin -- audit list"$/m);
    expect((await admin('audit', 'list')).json).toContainEqual(
      expect.objectContaining({ actor: 'unsure', act: 'lane open' }),
    );
    await done(admin('lane', 'lock', 'live'));
  });
});

describe('admin output', () => {
  it('is a table on a terminal, and JSON otherwise or on request', async () => {
    expect((await person('tenant', 'list')).out).toMatch(/^tenant_id +environment +allowlisted/);
    expect((await person('tenant', 'list', '--json')).json).toHaveLength(1);
    expect((await person('lane', 'lock', 'live')).out).toBe(
      'environment  live\nopen         false\n',
    );
    expect((await person('fixture', 'list')).out).toBe('none\n');
  });

  it('includes the vkey that is derived from a key file', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const file = join(home, 'log.pem');
    writeFileSync(file, privateKey.export({ format: 'pem', type: 'pkcs8' }));
    const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
    const vkey = formatVkey(nativeSha256, 'example.org/log', raw);
    expect(await done(offline('vkey', 'example.org/log', file))).toEqual({ vkey });
  });

  it.each([
    ['admin', 'help', 1],
    ['fsck', '--help', 3],
  ])(
    'ends %s without an error trace when a reader such as `head` closes it',
    (name, help, code) => {
      const program = join(packageRoot, 'dist', 'programs', `${name}.js`);
      const piped = `"${process.execPath}" "${program}" ${help} | :; echo "\${PIPESTATUS[0]}"`;
      const { stdout, stderr } = spawnSync('bash', ['-c', piped], { encoding: 'utf8' });
      expect([stdout, stderr]).toEqual([`${code}\n`, '']);
    },
  );

  it.each([
    ['dist/programs/admin.js', 'help', 1],
    ['dist/programs/fsck.js', '--help', 3],
    ['sdk/dist/cli/svc.js', 'help', 3],
  ])('of %s that cannot be written, as on a full disk, is reported', (name, help, code) => {
    const limited = `ulimit -f 0; exec "$0" "$1" ${help} > "$2"`;
    const args = ['-c', limited, process.execPath, join(packageRoot, name), join(home, 'full')];
    const { status, stderr } = spawnSync('bash', args, { encoding: 'utf8' });
    expect([status, stderr]).toEqual([
      code,
      expect.stringMatching(/^(svc: )?standard output cannot be written.* \(?EFBIG/),
    ]);
  });
});

it('table > formats more rows than a call has arguments', () => {
  const rows = Array.from({ length: 150_000 }, (_, n) => ({ n }));
  expect(table(rows)).toMatch(/^n\n0\n/);
});
