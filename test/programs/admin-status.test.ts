import { randomUUID } from 'node:crypto';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { attentionFor } from '#programs/admin/status';
import { type Facts } from '#programs/admin/status/facts';
import { withPause } from '#runtime/ops/health';
import { recordHeartbeat, readUpkeep, recordMaintenance } from '#sql/ops/queries';
import { adminWith } from '../fixtures/admin.js';
import { testLog } from '../fixtures/checkpoints.js';
import { issueKey } from '../fixtures/engine.js';
import { holdLock } from '../fixtures/hold-lock.js';
import { serveLocally } from '../fixtures/local-server.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testRegistry } from './world.js';

const { db, registry } = await testRegistry();

/** The readiness that the last heartbeat of each program reports. */
const READINESS = {
  engine: { status: 'ready', dependencies: { database: 'up', queue: 'up' } },
  worker: { status: 'ready', jobs: 'up' },
  verifier: { status: 'ready', rounds: { log: 'up' } },
  publisher: {
    status: 'ready',
    published_ms_ago: 400,
    snapshot_disk: { free_bytes: 5e9, size_bytes: 9e9 },
    quorum_ms_ago: 700,
  },
};
const beats: (() => Promise<void>)[] = [];

await issueKey(registry);
const facade = await serveLocally((_req, res) => {
  res.end(JSON.stringify({ status: 'ready', age_ms: 500, refusal: null }));
});
afterAll(() => facade.close());
const env = {
  DATABASE_URL: db.urlFor('svc_admin'),
  PUBLIC_URL: facade.url,
};
const admin = adminWith(env);
await registry.admitAll([registry.item(), registry.item()]);
await registry.verifyAll();
await testLog(db).publish();
for (const [program, readiness] of Object.entries(READINESS)) {
  const [sql, instance] = [db.as(`svc_${program}`), randomUUID()];
  beats.push(() => recordHeartbeat(sql, instance, readiness));
}
beforeEach(async () => {
  await Promise.all(beats.map((beat) => beat()));
});

interface Status extends Facts {
  status: string;
  attention: { what: string; do: string }[];
}
const status = async (): Promise<{ code: number; said: Status }> => {
  const { code, json } = await admin('status', '--json');
  return { code, said: json as Status };
};

describe('admin status', () => {
  it('reports a healthy service with exit code 0', async () => {
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
      publication: { refused: null },
      public_api: [{ ready: true, status: 'ready' }],
      pending: { admissions: 0, oldest_ms: null },
      batches: { open: 0, oldest_ms: null },
      verifier: { lag: 0, failing_leaves: 0 },
      checkpoint: { tree_size: 3, lag: 0 },
      snapshot_disk: { free_bytes: 5e9 },
      quorum_age_ms: 700,
      maintenance: [
        { kind: 'backup', recorded: false },
        { kind: 'fsck', recorded: false },
      ],
      archive_age_ms: null,
      replication_lag_bytes: 0,
    });
    expect(said.programs.map(({ alive }) => alive)).toEqual([1, 1, 1, 1]);
    expect(said.publication.age_ms).toBeGreaterThanOrEqual(400);
    expect(said.policy).toMatch(/^[0-9a-f]{64}$/);
    expect(said.database.bytes).toBeGreaterThan(1_000_000);
    expect(said.roles.map(({ role }) => role)).toContain('svc_worker');
  });

  it('exits with 2 when the database is unreachable', async () => {
    const nowhere = { DATABASE_URL: 'postgres://svc_admin:hush@127.0.0.1:1/svc' };
    const reply = await adminWith(nowhere)('status', '--json');
    expect(reply).toMatchObject({ code: 2, err: '', json: { status: 'unreachable' } });
    expect(reply.out).not.toContain('hush');
  });
});

it('admin status > exits with 2 when PostgreSQL stops responding during the command', async () => {
  // The proxy stalls at a statement that the command sends after it has connected.
  let isSilent = false;
  const proxy = await TcpProxy.open(env.DATABASE_URL, 'other', (bytes) => {
    if (!bytes.includes('has_table_privilege')) return;
    isSilent = true;
    proxy.stall(true);
  });
  try {
    const DATABASE_URL = proxy.urlFor(env.DATABASE_URL);
    const reply = await adminWith({ ...env, DATABASE_URL })('status', '--json');
    expect(isSilent).toBe(true);
    expect(reply).toMatchObject({ code: 2, err: '', json: { status: 'unreachable' } });
  } finally {
    await proxy.close();
  }
});

it('admin status > reports a statement timeout as a slow database, not as an unreachable one', async () => {
  const unlock = await holdLock(db.sql, 'lock table svc.scrub in access exclusive mode');
  const DATABASE_URL = `${env.DATABASE_URL}?statement_timeout=3000`;
  const reply = await adminWith({ ...env, DATABASE_URL })('status', '--json');
  await unlock();
  expect(reply.code).toBe(1);
  expect(reply.json).toMatchObject({
    status: 'attention',
    attention: [{ what: 'the database answers too slowly' }],
  });
});

it('admin status > reports ADMISSIONS_PAUSED although the environment is open', async () => {
  const find = withPause(true, () => Promise.resolve({ ready: true, details: READINESS.engine }));
  await recordHeartbeat(db.as('svc_engine'), randomUUID(), (await find()).details);
  const { code, said } = await status();
  expect(said.attention.map(({ what }) => what)).toEqual([
    'admissions paused, as reported by engine (1 of 2)',
  ]);
  expect(code).toBe(1);
});

it('admin status > reports a deleted row of svc.scrub', async () => {
  const rows = await db.sql`delete from svc.scrub returning *`;
  const { code, said } = await status();
  await db.sql`insert into svc.scrub ${db.sql(rows)}`;
  expect(said.attention.map(({ what }) => what)).toContainEqual(
    expect.stringMatching(/^the row of svc.scrub was deleted/),
  );
  expect(code).toBe(1);
});

it('admin backup record > records a backup, which the publisher role can read but not record', async () => {
  const ages = async () =>
    (await readUpkeep(db.as('svc_publisher'))).maintenance.map(({ kind, endedAt }) => [
      kind,
      endedAt !== null,
    ]);
  expect(await ages()).toEqual([
    ['backup', false],
    ['fsck', false],
  ]);
  expect((await admin('backup', 'record')).code).toBe(0);
  expect(await ages()).toEqual([
    ['backup', true],
    ['fsck', false],
  ]);
  await expect(recordMaintenance(db.as('svc_publisher'))).rejects.toThrow(/permission denied/);
  await expect(recordMaintenance(db.sql)).rejects.toThrow(/cannot record this: log in as/);
});

describe('attentionFor', () => {
  type ProgramFacts = Facts['programs'][number];
  const programs = Object.keys(READINESS).map((program) => ({
    program: program as ProgramFacts['program'],
    alive: 2,
    last_heartbeat_ms: 900,
    up_ms: 60_000,
    faults: {},
  }));
  const but = (program: string, facts: Partial<ProgramFacts>): Partial<Facts> => ({
    programs: programs.map((one) => (one.program === program ? { ...one, ...facts } : one)),
  });
  const url = 'http://127.0.0.1:8081';
  const answered = { url, ready: true, status: 'ready', age_ms: 500, refusal: null };
  const fsckFacts = (facts: Partial<Facts['maintenance'][number]>) => ({
    ...{ kind: 'fsck', recorded: true, age_ms: 86_400_000, failed_ms: null },
    ...facts,
  });
  const well: Facts = {
    lanes: [],
    policy: 'ab',
    tenants_allowlisted: 1,
    api_keys_active: 1,
    aep_keys_active: ['k'],
    worker_keys: ['k'],
    programs,
    publication: { age_ms: 800, refused: null },
    public_api: [answered],
    log: { leaves: 10 },
    pending: { admissions: 3, oldest_ms: 900 },
    batches: { open: 0, oldest_ms: null },
    verifier: {
      ...{ lag: 2, scrubbed_to: 0, failing_leaves: 0, voided_leaves: 0 },
      ...{ verified_ms_ago: 200, oldest_ms: 31_000 },
    },
    checkpoint: { tree_size: 7, lag: 3, age_ms: 1_000, oldest_ms: 31_000 },
    database: { bytes: 1 },
    snapshot_disk: { free_bytes: 50, size_bytes: 100 },
    quorum_age_ms: 1_000,
    maintenance: [fsckFacts({})],
    archive_age_ms: 60_000,
    replication_lag_bytes: 0,
    roles: ['svc_engine', 'svc_worker', 'svc_verifier', 'svc_publisher'].map((role) => ({
      role,
      login: true,
      connections: 1,
    })),
  };
  const late = 31_000;

  it('reports no stall while the last verdict and checkpoint, or the oldest leaves without them, are new', () => {
    expect(attentionFor(well)).toEqual([]);
    const verifier = { ...well.verifier, verified_ms_ago: late, oldest_ms: 200 };
    const checkpoint = { ...well.checkpoint!, age_ms: late, oldest_ms: 200 };
    expect(attentionFor({ ...well, verifier, checkpoint })).toEqual([]);
  });

  it.each<[string, Partial<Facts>]>([
    ['no policy set is active', { policy: null }],
    ['no AEP key is active', { aep_keys_active: [] }],
    [
      "a worker's key is not active, so the worker commits no admissions: other",
      { worker_keys: ['k', 'other'] },
    ],
    ['no engine is connected', { roles: well.roles.slice(1) }],
    ['no worker is alive', but('worker', { alive: 0, last_heartbeat_ms: late })],
    ['no engine has recorded', but('engine', { alive: 0, last_heartbeat_ms: null })],
    [
      'no program has committed for 31 s, although each is connected',
      { programs: programs.map((one) => ({ ...one, alive: 0, last_heartbeat_ms: late })) },
    ],
    ['queue down, as reported by engine (1 of 2)', but('engine', { faults: { 'queue down': 1 } })],
    ['the publisher refuses', { publication: { age_ms: 800, refused: 'log_forked' } }],
    ['no publish cycle has succeeded', { publication: { age_ms: late, refused: null } }],
    ['no publish cycle has succeeded', { publication: { age_ms: null, refused: null } }],
    ['the public API is down', { public_api: [{ ...answered, ready: false }] }],
    ['the public API at', { public_api: [{ ...answered, age_ms: late, refusal: 'forged' }] }],
    ['an admission has waited 31 s', { pending: { admissions: 1, oldest_ms: late } }],
    [
      'an admission has waited 700 s',
      { pending: { admissions: 9, oldest_ms: 7e5 }, batches: { open: 1, oldest_ms: 7e5 } },
    ],
    ['the verifier is 2 leaves behind', { verifier: { ...well.verifier, verified_ms_ago: late } }],
    ['the verifier is 2 leaves behind', { verifier: { ...well.verifier, verified_ms_ago: null } }],
    [
      'no signed checkpoint covers the last 3',
      { checkpoint: { ...well.checkpoint!, age_ms: late } },
    ],
    ['no signed checkpoint covers the last 10', { checkpoint: null }],
    ['the disk of the snapshots', { snapshot_disk: { free_bytes: 9, size_bytes: 100 } }],
    ['no checkpoint has met the witness quorum', { quorum_age_ms: 181_000 }],
    ['the last fsck was', { maintenance: [fsckFacts({ age_ms: 4e9 })] }],
    ['fsck found corruption', { maintenance: [fsckFacts({ failed_ms: 1_000 })] }],
    [
      'the last backup is not recorded',
      { maintenance: [fsckFacts({ kind: 'backup', recorded: false, age_ms: 7e8 })] },
    ],
    ['PostgreSQL has archived no WAL', { archive_age_ms: 601_000 }],
    ['a replication slot is 2.0 GB behind', { replication_lag_bytes: 2e9 }],
    ['the row of svc.scrub was deleted', { verifier: { ...well.verifier, scrubbed_to: null } }],
    ['4 leaves do not verify', { verifier: { ...well.verifier, failing_leaves: 4 } }],
  ])('reports that %s', (what, facts) => {
    const found = attentionFor({ ...well, ...facts });
    expect(found).toHaveLength(1);
    expect(found[0]?.what.startsWith(what)).toBe(true);
    expect(found[0]?.do).not.toBe('');
  });
});
