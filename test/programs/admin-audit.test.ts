import { cpSync, writeFileSync } from 'node:fs';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseApiKey } from '#runtime/crypto/api-key';
import { toBase64Url } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { createSigningKey } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { connect } from '#runtime/postgres/connect';
import { withAuditContext } from '#sql/tenants/audit';
import type { Db } from '#sql/db/transaction';
import { recordHeartbeat } from '#sql/ops/queries';
import { adminCommands } from '#programs/admin/main';
import { done } from '../fixtures/admin.js';
import { newApprover } from '../fixtures/approvals.js';
import { logKey } from '../fixtures/public-log.js';
import { verdictSigner } from '../fixtures/verdict-signer.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

const { db, registry, admin, person } = await testRegistry();
const folder = await testFolder();
const shipped = join(packageRoot, 'policy', 'default');
cpSync(join(shipped, 'schema.cedarschema'), join(folder, 'schema.cedarschema'));
writeFileSync(join(folder, 'permit.cedar'), 'permit (principal, action, resource);');
writeFileSync(
  join(folder, 'cases.json'),
  JSON.stringify({
    name: 'any action',
    input: { tenant: 'acme', environment: 'sandbox', lane: 'execute', action: 'ACT' },
    expect: 'ADMIT',
  }),
);
writeFileSync(join(folder, 'fixture.json'), '{"step": 1}');
const { privateKey } = generateKeyPairSync('ed25519');
writeFileSync(join(folder, 'aep.pem'), privateKey.export({ format: 'pem', type: 'pkcs8' }));
let last = 0;
await fresh();

interface AuditRow {
  audit_id: number;
  db_role: string;
  actor: string | null;
  act: string | null;
  object: string;
  operation: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/** The audit records since the last call. */
async function fresh(): Promise<AuditRow[]> {
  const rows = await db.sql<AuditRow[]>`
    select audit_id, db_role, actor, act, object, operation, before, after
    from svc.audit where audit_id > ${last} order by audit_id`;
  last = rows.at(-1)?.audit_id ?? last;
  return rows;
}

describe('audit of admin commands', () => {
  let [keyId, digest, aepKeyId, verifierKeyId] = ['', '', '', ''];

  // A command, its further arguments, and the expected audit records.
  const key = join(folder, 'aep.pem');
  const verifierKey = join(folder, 'verifier.pem');
  const { registration, registrationHash } = newApprover('beta');
  const approverFile = join(folder, 'approver.json');
  writeFileSync(approverFile, canonicalBytes(registration));
  createSigningKey(verifierKey);
  const logVkeys = [logKey(), logKey()].map(({ vkey }) => vkey);
  const acts: [string, () => string | Promise<string>, string[]][] = [
    ['tenant create', () => 'beta sandbox', ['INSERT tenant']],
    ['tenant allow', () => 'beta', ['UPDATE tenant']],
    ['tenant disallow', () => 'beta', ['UPDATE tenant']],
    ['tenant validity', () => 'beta none 60 60 30', ['UPDATE tenant']],
    ['tenant limit', () => 'beta 7', ['UPDATE tenant']],
    ['tenant approval', () => 'beta 3600', ['UPDATE tenant']],
    ['backup record', () => '', ['UPDATE maintenance']],
    ['lane open', () => 'live', ['UPDATE lane']],
    ['lane lock', () => 'live', ['UPDATE lane']],
    ['key issue', () => 'beta --review REV-1', ['INSERT api_key']],
    ['key rotate', () => keyId, ['INSERT api_key', 'UPDATE api_key']],
    ['key expire', () => `${keyId} 60`, ['UPDATE api_key']],
    ['key revoke', () => keyId, ['UPDATE api_key']],
    ['policy put', () => folder, ['INSERT policy_set']],
    [
      'policy activate',
      () => `${digest} --cases ${join(folder, 'cases.json')}`,
      ['INSERT policy_activation'],
    ],
    ['fixture put', () => `f-1 ${join(folder, 'fixture.json')}`, ['INSERT fixture']],
    ['aep-key activate', () => key, ['INSERT log_entry']],
    ['aep-key retire', () => `${key} --confirm ${aepKeyId}`, ['INSERT log_entry']],
    [
      'aep-key compromise',
      () => `${key} --from-index 0 --confirm ${aepKeyId}`,
      ['INSERT log_entry'],
    ],
    ['verifier-key activate', () => verifierKey, ['INSERT log_entry']],
    [
      'verifier-key retire',
      async () => {
        await verdictSigner(registry, 'test.example/log').activate(); // the last cannot be retired
        await fresh();
        return `${verifierKey} --confirm ${verifierKeyId}`;
      },
      ['INSERT log_entry'],
    ],
    ['log-key activate', () => logVkeys[0]!, ['INSERT log_entry']],
    [
      'log-key retire',
      async () => {
        await done(admin('log-key', 'activate', logVkeys[1]!)); // the last cannot be retired
        await fresh();
        return `${logVkeys[0]!} --confirm ${logVkeys[0]!}`;
      },
      ['INSERT log_entry'],
    ],
    ['approver add', () => `beta ${approverFile}`, ['INSERT log_entry']],
    [
      'approver retire',
      () => `${registrationHash} --confirm ${registrationHash}`,
      ['INSERT log_entry'],
    ],
    [
      'revoke',
      async () => {
        const [proofId = ''] = await registry.admitAll([registry.item()]);
        return `${proofId} certificate --reason wrong`;
      },
      ['INSERT log_entry'],
    ],
    [
      'log end',
      async () => {
        const origin = 'test.example/log';
        await db.sql`
          insert into svc.checkpoint (tree_size, root, note)
          values (1, sha256(''), ${`${origin}\n1\n`})`;
        await recordHeartbeat(db.as('svc_publisher'), randomUUID(), { refused: 'log_forked' });
        return `${origin} --reason test --confirm ${origin}`;
      },
      ['INSERT ended_log'],
    ],
  ];

  it.each(acts)('records exactly the changes that %s makes', async (name, line, records) => {
    const words = `${name} ${await line()} --actor ada`.split(/ +/);
    const document = await done(admin(...words));
    if (name === 'aep-key activate') aepKeyId = String(document['key_id']);
    if (name === 'verifier-key activate') verifierKeyId = String(document['key_id']);
    if (name === 'key issue') keyId = String(document['key_id']);
    if (name === 'policy put') digest = String(document['digest']);
    const rows = await fresh();
    expect(rows.map((row) => `${row.operation} ${row.object}`)).toEqual(records);
    for (const row of rows) {
      expect(row).toMatchObject({ db_role: 'svc_admin', actor: 'ada', act: name });
      expect(row.before === null).toBe(row.operation === 'INSERT');
    }
  });

  it('is tested above for every command that changes data', () => {
    const asks = /(list|show|diff|test|simulate|validate|vkey|pins|status|lost)$/;
    const names = [...adminCommands().keys()];
    // Erasures, adoptions and init need another role, and have tests of their own.
    const changing = names.filter((name) => !asks.test(name) && !/^erase|adopt$|^init$/.test(name));
    expect(acts.map(([name]) => name).sort()).toEqual(changing.sort());
  });

  it('records nothing when a command fails', async () => {
    for (const line of [
      'tenant allow none',
      'tenant create beta live',
      `key rotate ${keyId}`,
      `policy activate ${digest} --cases ${join(folder, 'cases.json')} --from 2020-01-01T00:00:00Z`,
      `aep-key activate ${join(folder, 'aep.pem')}`,
      'revoke 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f proof --reason x',
    ]) {
      expect((await admin(...line.split(' '))).code, line).toBe(1);
    }
    expect(await fresh()).toEqual([]);
  });

  it('commits a change and its audit record atomically', async () => {
    await db.sql.unsafe(`
      create function public.full() returns trigger language plpgsql as $$ begin
        raise exception 'the audit is full'; end $$;
      create trigger full_up before insert on svc.audit for each row execute function public.full()`);
    const { code, err } = await admin('tenant', 'create', 'gamma', 'sandbox');
    await db.sql.unsafe('drop trigger full_up on svc.audit; drop function public.full()');
    expect(code).toBe(1);
    expect(err).toContain('the audit is full');
    expect(await registry.admin`select from svc.tenant where tenant_id = 'gamma'`).toHaveLength(0);
    expect(await fresh()).toEqual([]);
  });

  it('does not record the actor for later statements on the connection', async () => {
    const sql = connect(db.urlFor('svc_admin'), { application: 'test', max: 1 });
    const lock = (tx: Db) => tx`update svc.lane set open = false where environment = 'live'`;
    await withAuditContext(sql, { actor: 'ada', act: 'lane lock' }, lock);
    await lock(sql);
    await sql.end();
    expect(await fresh()).toMatchObject([
      { actor: 'ada', act: 'lane lock' },
      { actor: null, act: null, db_role: 'svc_admin' },
    ]);
  });
});

describe('audit table', () => {
  it('contains no secret, no hash of a secret and no reason', async () => {
    const issued = await done(admin('key', 'issue', 'beta', '--review', 'REV-2'));
    const text = String(issued['api_key']);
    await done(admin('key', 'revoke', text));
    const [row] = await db.sql<{ secret_hash: Buffer }[]>`
      select secret_hash from svc.api_key where key_id = ${String(issued['key_id'])}`;
    const everything = JSON.stringify(await db.sql`select * from svc.audit`);
    expect(everything).toContain(String(issued['key_id']));
    expect(everything).not.toContain(text);
    expect(everything).not.toContain(toBase64Url(parseApiKey(text)!.secret));
    expect(everything).not.toContain(row!.secret_hash.toString('hex'));
    expect(everything).not.toContain('"wrong"');
  });

  it('is printed without control characters', async () => {
    await registry.admin`select set_config('svc.actor', ${'\u001b[2J\u009b0meve'}, false)`;
    await registry.admin`update svc.lane set open = false where environment = 'live'`;
    const { out } = await person('audit', 'list', '--limit', '5');
    expect(out).toContain('\ufffd[2J\ufffd0meve');
    const { out: json } = await person('audit', 'list', '--limit', '5', '--json');
    expect(json).toContain(String.raw`\u001b[2J\u009b0meve`);
  });
});
