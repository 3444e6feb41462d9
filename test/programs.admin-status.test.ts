import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attentionFor } from '#programs/admin/status/attention';
import type { Facts } from '#programs/admin/status/facts';
import { acceptIntake } from '#sql/intake';
import { adminOn, adminWith, type AdminLine } from './helpers/admin.js';
import { testLog } from './helpers/checkpoints.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import { issueKey } from './helpers/engine.js';
import { openRegistry, type TestRegistry } from './helpers/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let admin: AdminLine;
let person: AdminLine;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  await issueKey(registry);
  admin = adminOn(db);
  person = adminOn(db, { isTerminal: true });
  await registry.admitAll([registry.item(), registry.item()]);
  await registry.verifyAll();
  await testLog(db).publish();
  // As a publisher that runs.
  await db.as('svc_publisher')`select 1`;
});
afterAll(() => db.drop());

interface Status extends Facts {
  status: string;
  attention: { what: string; do: string }[];
}
const status = async (): Promise<{ code: number; said: Status }> => {
  const { code, json } = await admin('status', '--json');
  return { code, said: json as Status };
};

describe('admin status', () => {
  it('says that all is well, with exit code 0', async () => {
    const { code, said } = await status();
    expect(said.attention).toEqual([]);
    expect(code).toBe(0);
    expect(said).toMatchObject({
      status: 'well',
      lanes: [
        { environment: 'live', open: false },
        { environment: 'sandbox', open: true },
      ],
      tenants_allowlisted: 1,
      api_keys_active: 1,
      aep_keys_active: [registry.admit.keyId],
      log: { leaves: 3 },
      pending: { admissions: 0, oldest_ms: null },
      batches: { open: 0, oldest_ms: null },
      verifier: { lag: 0, failing_leaves: 0 },
      checkpoint: { tree_size: 3, lag: 0 },
    });
    expect(said.policy).toMatch(/^[0-9a-f]{64}$/);
    expect(said.database.bytes).toBeGreaterThan(1_000_000);
    expect(said.roles.map(({ role }) => role)).toContain('svc_worker');
  });

  it('fits on one screen for a person, with the same facts', async () => {
    const { code, out } = await person('status');
    expect(code).toBe(0);
    expect(out.trimEnd().split('\n').length).toBeLessThan(24);
    for (const line of out.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    expect(out).toMatch(/lanes +live locked, sandbox open\n/);
    expect(out).toMatch(/log +3 leaves\n/);
    expect(out).toMatch(/all well\n$/);
  });

  it('says what wants attention and what to do, with exit code 1', async () => {
    await db.sql`
      insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
      values (false, 1, 1, 3, decode(repeat('00', 32), 'hex'), 'fail', '{}')`;
    const { code, said } = await status();
    expect(code).toBe(1);
    expect(said).toMatchObject({ status: 'attention', verifier: { failing_leaves: 1 } });
    expect(said.attention.map(({ what }) => what)).toEqual(['1 leaves do not verify']);
    const screen = await person('status');
    expect(screen.code).toBe(1);
    expect(screen.out).toMatch(/! 1 leaves do not verify\n {4}\S/);
  });

  it('counts what is pending', async () => {
    await acceptIntake(registry.engine, [registry.item()]);
    const { said } = await status();
    expect(said.pending.admissions).toBe(1);
    expect(said.pending.oldest_ms).toBeGreaterThanOrEqual(0);
  });

  it('says that nobody answers, with exit code 2', async () => {
    const nowhere = { DATABASE_URL: 'postgres://svc_admin:hush@127.0.0.1:1/svc' };
    const reply = await adminWith(nowhere)('status', '--json');
    expect(reply).toMatchObject({ code: 2, err: '', json: { status: 'unreachable' } });
    expect(reply.out).not.toContain('hush');
    expect((await adminWith(nowhere, true)('status')).code).toBe(2);
  });
});

describe('what wants attention', () => {
  const well: Facts = {
    lanes: [],
    policy: 'ab',
    tenants_allowlisted: 1,
    api_keys_active: 1,
    aep_keys_active: ['k'],
    worker_keys: ['k'],
    log: { leaves: 10 },
    pending: { admissions: 3, oldest_ms: 900 },
    batches: { open: 0, oldest_ms: null },
    verifier: { lag: 2, scrubbed_to: 0, failing_leaves: 0, verified_ms_ago: 200 },
    checkpoint: { tree_size: 7, lag: 3, age_ms: 1_000 },
    database: { bytes: 1 },
    roles: ['svc_worker', 'svc_verifier', 'svc_publisher'].map((role) => ({
      role,
      login: true,
      connections: 1,
    })),
  };
  const late = 31_000;

  it('is nothing while everything moves', () => {
    expect(attentionFor(well)).toEqual([]);
  });

  it.each<[string, Partial<Facts>]>([
    ['no policy is in force', { policy: null }],
    ['no AEP key is active', { aep_keys_active: [] }],
    [
      "a worker's key is not active, and it settles nothing: other",
      { worker_keys: ['k', 'other'] },
    ],
    ['no worker is connected', { roles: well.roles.slice(1) }],
    ['an admission has waited 31 s', { pending: { admissions: 1, oldest_ms: late } }],
    ['the verifier has 2 leaves', { verifier: { ...well.verifier, verified_ms_ago: late } }],
    ['the verifier has 2 leaves', { verifier: { ...well.verifier, verified_ms_ago: null } }],
    ['3 leaves are in no signed', { checkpoint: { tree_size: 7, lag: 3, age_ms: late } }],
    ['10 leaves are in no signed', { checkpoint: null }],
    ['4 leaves do not verify', { verifier: { ...well.verifier, failing_leaves: 4 } }],
  ])('is that %s', (what, facts) => {
    const found = attentionFor({ ...well, ...facts });
    expect(found).toHaveLength(1);
    expect(found[0]?.what.startsWith(what)).toBe(true);
    expect(found[0]?.do).not.toBe('');
  });
});
