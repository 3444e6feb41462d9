import { describe, expect, it } from 'vitest';
import { toHex } from '#protocol/bytes';
import { membersHash } from '#protocol/run';
import type { AepSubject } from '#protocol/schemas/aep';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { readRun, readRunStates } from '#sql/admissions/references';
import { asTenants } from '#sql/db/transaction';
import { readProof } from '#sql/proofs/read';
import { processAdmissions } from '#workers/admit/process';
import {
  admissionEnvelope,
  agentItem,
  closeEnvelope,
  newRunId,
  outcomeEnvelope,
} from '../fixtures/agent.js';
import { holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { withoutTriggers } from '../fixtures/database.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

const member = (id: string, seq: number, overrides: Record<string, unknown> = {}): IntakeItem =>
  agentItem(registry, admissionEnvelope({ run: { id, seq }, ...overrides }));
const close = (id: string, seq: number): IntakeItem =>
  agentItem(registry, closeEnvelope({ id, seq }));

const accept = async (...items: IntakeItem[]) =>
  (await acceptIntake(registry.engine, items)).map(({ outcome }) => outcome);
const work = async (...items: IntakeItem[]) => {
  const ids = items.map(({ proofId }) => proofId);
  await processAdmissions(registry.admit, ids);
  const outcomes = await registry.readOutcomes(ids);
  return ids.map((id) => {
    const outcome = outcomes.get(id);
    return outcome?.state === 'refused' ? outcome.code : (outcome?.state ?? 'pending');
  });
};

async function subjectOf(proofId: string, tenantNo = registry.tenantNo): Promise<AepSubject> {
  const stored = await readProof(registry.engine, tenantNo, proofId);
  return (JSON.parse(String(stored?.aep)) as { subject: AepSubject }).subject;
}

describe('close of a run', () => {
  it('states the number of its proofs and their hash in log order', async () => {
    const id = newRunId();
    const first = member(id, 0);
    const denied = member(id, 1, { action: 'DELETE_AUDIT_LOG' });
    await accept(first, denied);
    await work(denied);
    await work(first);
    const outcome = agentItem(registry, outcomeEnvelope(first.proofId, { run: { id, seq: 2 } }));
    await accept(outcome);
    await work(outcome);
    const end = close(id, 3);
    await accept(end);
    expect(await work(end)).toEqual(['proved']);
    const stored = await Promise.all(
      [denied, first, outcome].map(({ proofId }) =>
        readProof(registry.engine, registry.tenantNo, proofId),
      ),
    );
    const members = stored.map((proof) => ({
      proofId: proof!.proofId,
      aepHash: proof!.aepHash.toString('hex'),
    }));
    expect(await subjectOf(end.proofId)).toEqual({
      kind: 'close',
      agent: { id: 'agent-7', framework: 'langgraph', bound: false },
      run: { id, seq: 3 },
      count: 3,
      members_hash: membersHash(nativeSha256, members),
    });
  });

  it('fails verification when the signing worker left a proof of the run out', async () => {
    const id = newRunId();
    const [first, hidden] = [member(id, 0), member(id, 5)];
    const end = close(id, 1);
    await accept(first, hidden);
    await work(first, hidden);
    const hide = (refused: boolean) =>
      withoutTriggers(
        db,
        `update svc.intake set refused = ${refused} where proof_id = '${hidden.proofId}'`,
      );
    // Hides the proof from the worker, so that the worker leaves it out of the close.
    await hide(true);
    await accept(end);
    expect(await work(end)).toEqual(['proved']);
    await hide(false);
    await registry.verifyAll();
    const failed = await db.sql<{ proofId: string }[]>`
      select e.proof_id as "proofId" from svc.verdict v
      join svc.log_entry e on e.leaf_index between v.first_index and v.last_index
      where v.outcome = 'fail' and not v.frontier`;
    expect(failed.map(({ proofId }) => proofId)).toEqual([end.proofId]);
  });

  it('is rejected, and releases its number, when the run is still incomplete at the append', async () => {
    const id = newRunId();
    const pending = member(id, 0);
    const early = close(id, 1);
    // `accept` skips the engine's check of the run, as a race between two requests could.
    await accept(pending, early);
    expect(await work(early)).toEqual(['run_incomplete']);
    expect(await work(pending)).toEqual(['proved']);
    const later = member(id, 5);
    const short = close(id, 1);
    await accept(later, short);
    expect(await work(later, short)).toEqual(['proved', 'run_incomplete']);
    const gap = close(id, 6);
    await accept(gap);
    expect(await work(gap)).toEqual(['run_incomplete']);
  });

  it('causes the rejection of a request that the engine accepted without seeing the close', async () => {
    const id = newRunId();
    const end = close(id, 0);
    await accept(end);
    await work(end);
    const late = member(id, 1);
    // As if the engine had read the run before the close: `accept` skips the check of the engine.
    await accept(late);
    expect(await work(late)).toEqual(['run_closed']);
  });
});

it('run > is separate for tenants that use the same agent id and run id', async () => {
  const id = newRunId();
  const tenantNo = await registry.addTenant('rival');
  const rivals = (envelope: Record<string, unknown>): IntakeItem => ({
    ...agentItem(registry, { ...envelope, tenant_id: 'rival' }),
    tenantNo,
  });
  const own = member(id, 0);
  const first = rivals(admissionEnvelope({ run: { id, seq: 0 } }));
  const second = rivals(admissionEnvelope({ run: { id, seq: 1 } }));
  const theirEnd = rivals(closeEnvelope({ id, seq: 2 }));
  const end = close(id, 1);
  expect(await accept(own, first, second)).toEqual(['accepted', 'accepted', 'accepted']);
  await work(own, first, second);
  await accept(theirEnd);
  await work(theirEnd);
  expect(await subjectOf(theirEnd.proofId, tenantNo)).toMatchObject({ count: 2 });
  // The role of the workers sees every tenant, so only the queries separate them.
  const ask = { lane: 2, requestHash: toHex(end.requestHash), run: end.run! };
  const [state] = await readRunStates(registry.admit.sql, registry.tenantNo, [ask]);
  expect(state).toMatchObject({ isClosed: false, fault: null });
  await accept(end);
  await work(end);
  expect(await subjectOf(end.proofId)).toMatchObject({ count: 1 });
});

describe('closes of one group', () => {
  it('are appended in one transaction, only the first of each run', async () => {
    const [one, other] = [newRunId(), newRunId()];
    const closes = [close(one, 0), close(one, 1), close(other, 0)];
    await accept(...closes);
    expect(await work(...closes)).toEqual(['proved', 'run_closed', 'proved']);
    const ids = closes.map(({ proofId }) => proofId);
    const [row] = await db.sql<{ transactions: number }[]>`
      select count(distinct xmin::text)::integer as transactions from svc.log_entry
      where proof_id = any(${ids}::uuid[])`;
    expect(row?.transactions).toBe(1);
  });

  it('end a run that an earlier close of the group could not end', async () => {
    const id = newRunId();
    const closes = [close(id, 1), close(id, 0)];
    await accept(...closes);
    expect(await work(...closes)).toEqual(['run_incomplete', 'proved']);
  });

  it('get their own fault if the worker rejects an earlier close', async () => {
    const id = newRunId();
    const unknownKey = { ...close(id, 0), keyNo: 999_999 };
    const early = close(id, 1);
    await accept(unknownKey, early);
    expect(await work(unknownKey, early)).toEqual(['api_key_revoked', 'run_incomplete']);
  });

  it('are appended, except a close whose stored request differs from the accepted request', async () => {
    const [first, altered, last] = [
      close(newRunId(), 0),
      close(newRunId(), 0),
      close(newRunId(), 0),
    ];
    await accept(
      first,
      { ...altered, requestHash: last.requestHash.map((byte) => byte ^ 1) },
      last,
    );
    expect(await work(first, altered, last)).toEqual(['proved', 'processing_failed', 'proved']);
  });
});

describe('number in a run', () => {
  it('belongs to one request, even under concurrency', async () => {
    const id = newRunId();
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => accept(member(id, 0))));
    expect(outcomes.flat().sort()).toEqual([
      'accepted',
      ...Array.from({ length: 7 }, () => 'run_seq_taken'),
    ]);
    expect(
      await readRun(registry.engine, registry.tenantNo, member(id, 0).run!.runKey),
    ).toHaveLength(1);
  });

  it('lets one other request use the idempotency key after run_seq_taken', async () => {
    const id = newRunId();
    await accept(member(id, 0));
    const idempotencyKey = id;
    const keyed = (seq: number) => ({ ...member(id, seq), idempotencyKey });
    const other = { ...member(id, 1), idempotencyKey: `${id}-other` };
    expect(await accept(other, keyed(0), member(id, 0))).toEqual([
      'accepted',
      'run_seq_taken',
      'run_seq_taken',
    ]);
    const outcomes = await Promise.all([0, 2, 0, 3, 0, 4].map((seq) => accept(keyed(seq))));
    expect(outcomes.flat().filter((one) => one === 'accepted')).toHaveLength(1);
    expect(await accept(keyed(5))).toEqual(['idempotency_conflict']);
    const members = await readRun(registry.engine, registry.tenantNo, other.run!.runKey);
    expect(members).toHaveLength(3);
  });

  it('is checked without reading the other runs of the tenant', async () => {
    const { tenantNo } = registry;
    await withoutTriggers(
      db,
      `insert into svc.intake (proof_id, tenant_no, lane, environment, request_hash, accepted_at,
        policy_digest, run_key, run_seq, run_closes)
      select gen_random_uuid(), ${tenantNo}, 2, 'sandbox', sha256(n::text::bytea), now(), '', sha256(n::text::bytea),
        0, false from generate_series(1, 5000) n`,
    );
    await db.sql`analyze svc.intake`;
    const engine = db.as('svc_engine', 1);
    const id = newRunId();
    await acceptIntake(engine, [member(id, 0)]);
    expect(await acceptIntake(engine, [member(id, 0)])).toEqual([{ outcome: 'run_seq_taken' }]);
    const plan = await asTenants(engine, [tenantNo], async (tx) => {
      const [found] = await tx<{ name: string }[]>`
        select name from pg_prepared_statements
        where statement like '%run_seq = asked.seq%' and statement not like '%pg_prepared%'`;
      return tx.unsafe(`explain execute "${found!.name}"('{${tenantNo}}', '{""}', '{0}')`);
    });
    expect(JSON.stringify(plan)).toMatch(/Index Cond: [^"]*\(run_key = asked.run_key\)/);
  });

  it('is assigned without a deadlock to concurrent groups', async () => {
    const id = newRunId();
    const seqs = Array.from({ length: 500 }, (_, seq) => seq);
    const groups = [0, 1, 2].map(() => seqs.map((seq) => member(id, seq)));
    // The lock makes all groups begin at the same time.
    const unlock = await holdLock(db.sql, 'lock table svc.intake in exclusive mode');
    const accepted = Promise.all(groups.map((items) => accept(...items)));
    await untilWaiting(db.sql, groups.length);
    await unlock();
    const outcomes = (await accepted).flat();
    expect(outcomes.filter((outcome) => outcome === 'accepted')).toHaveLength(seqs.length);
  });

  it('is the same for a repeated request, and can be used in runs of other agents', async () => {
    const id = newRunId();
    const item = member(id, 0);
    const repeated = { ...item, proofId: newRunId() };
    expect(await accept(item, repeated)).toEqual(['accepted', 'repeat']);
    const other = member(id, 0, { agent: { id: 'agent-8' } });
    expect(await accept(other)).toEqual(['accepted']);
  });

  it('must equal the number and run in the request, or the admission is rejected', async () => {
    const item = { ...member(newRunId(), 0), run: member(newRunId(), 0).run };
    const none = { ...member(newRunId(), 0), run: null };
    const foreign = { ...registry.item(), run: member(newRunId(), 0).run };
    const hidden = { ...close(newRunId(), 0), run: null };
    await accept(item, none, foreign, hidden);
    const failed = Array.from({ length: 4 }, () => 'processing_failed');
    expect(await work(item, none, foreign, hidden)).toEqual(failed);
  });

  it('is rejected when it exceeds the limit, which the database has not always checked', async () => {
    const item = member(newRunId(), 0);
    await accept(item);
    const [limit] = await db.sql<[{ name: string; definition: string }]>`
      select conname as name, pg_get_constraintdef(oid) as definition from pg_constraint
      where conrelid = 'svc.intake'::regclass and pg_get_constraintdef(oid) like '%9007199254740991%'`;
    await db.sql.unsafe(`alter table svc.intake drop constraint "${limit.name}"`);
    await withoutTriggers(
      db,
      `update svc.intake set run_seq = 9223372036854775807 where proof_id = '${item.proofId}'`,
    );
    await db.sql.unsafe(`alter table svc.intake add ${limit.definition}`);
    const other = member(newRunId(), 0);
    await accept(other);
    expect(await work(item, other)).toEqual(['processing_failed', 'proved']);
  });

  it('is rejected when the run id has a time in the future', async () => {
    const ahead = (Date.now() + 120_000).toString(16).padStart(12, '0');
    const item = member(ahead + newRunId().slice(12), 0);
    await accept(item);
    expect(await work(item)).toEqual(['invalid_run']);
  });
});

it('proofs > are looked up by the index of proof ids, not by a scan of the proofs of the tenant', async () => {
  const { tenantNo } = registry;
  const engine = db.as('svc_engine', 1);
  const id = newRunId();
  await readProof(engine, tenantNo, id);
  const plan = await asTenants(engine, [tenantNo], async (tx) => {
    await tx`set local plan_cache_mode = force_generic_plan`;
    const [found] = await tx<{ name: string }[]>`
      select name from pg_prepared_statements
      where statement like '%"proofRecordHash"%' and statement not like '%pg_prepared%'`;
    return tx.unsafe(`explain execute "${found!.name}"('{${id}}', ${tenantNo})`);
  });
  expect(JSON.stringify(plan)).toMatch(/log_entry_proof_id_key[^}]*}[^}]*\(proof_id = ANY/);
  expect(JSON.stringify(plan)).not.toContain('log_entry_of_tenant');
});
