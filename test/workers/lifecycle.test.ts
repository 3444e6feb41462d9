import { randomBytes } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { parseEntry, revocationReasonBytes } from '#protocol/entries';
import type { ArtifactKind } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { connect } from '#runtime/postgres/connect';
import type { Logger } from '#runtime/process/log';
import { openAdmitQueue } from '#runtime/queue/queues';
import { statusEntriesOf } from '#sql/log/log';
import {
  insertRevocationRequest,
  revocationState,
  type RevocationRequestResult,
  type RevocationItem,
} from '#sql/lifecycle/revocations';
import { startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { groupRevocations } from '#workers/lifecycle/revocations';
import { agentItem, outcomeEnvelope } from '../fixtures/agent.js';
import { beforeRow, withoutTriggers } from '../fixtures/database.js';
import { issueKey } from '../fixtures/engine.js';
import { APPEND_LOCK, holdLock } from '../fixtures/hold-lock.js';
import { TENANT } from '../fixtures/registry.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
let keyNo: number;
let proofId: string;

async function newKey(tenantId = TENANT): Promise<{ keyId: string; keyNo: number }> {
  const key = await issueKey(registry, { scopes: ['lifecycle'], tenantId });
  const id = key.split('_')[2] ?? '';
  const [row] = await db.sql<{ key_no: number }[]>`
    select key_no from svc.api_key where key_id = ${id}`;
  return { keyId: id, keyNo: row!.key_no };
}

beforeAll(async () => {
  ({ keyNo } = await newKey());
});
beforeEach(async () => {
  [proofId = ''] = await registry.admitAll([registry.item()]);
});

function item(overrides: Partial<RevocationItem> = {}): RevocationItem {
  const artifactKind: ArtifactKind = overrides.artifactKind ?? 'proof';
  const about = overrides.proofId ?? proofId;
  const document = revocationReasonBytes({
    proof_id: about,
    artifact_kind: artifactKind,
    reason: 'it was wrong',
    actor: 'auditor',
    salt: randomBytes(32).toString('hex'),
  });
  return {
    requestId: uuidv7().replaceAll('-', ''),
    keyNo,
    proofId: about,
    artifactKind,
    document,
    reasonHash: nativeSha256(document),
    ...overrides,
  };
}

const request = (one: RevocationItem): Promise<RevocationRequestResult> =>
  insertRevocationRequest(registry.engine, registry.tenantNo, one);
const commit = (...ids: string[]): Promise<void> => groupRevocations(registry.admit)(ids);

async function entries(about = proofId) {
  const found = await statusEntriesOf(registry.engine, [about], 1e9);
  return found.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }));
}

const stateOf = () => revocationState(registry.engine, registry.tenantNo, proofId, 'proof');

describe('revocation request', () => {
  it.each([
    ['a reason that does not match its hash', { reasonHash: randomBytes(32) }],
    [
      'a document that is not a request',
      { document: Buffer.from('{}'), reasonHash: nativeSha256(Buffer.from('{}')) },
    ],
  ])('is rejected with %s, and other requests of its job are appended', async (_, overrides) => {
    const [other = ''] = await registry.admitAll([registry.item()]);
    const bad = item(overrides);
    const good = item({ proofId: other });
    await request(bad);
    await request(good);
    await commit(bad.requestId, good.requestId);
    expect(await entries()).toEqual([]);
    expect(await entries(other)).toHaveLength(1);
    expect(await stateOf()).toEqual({ state: 'refused', code: 'processing_failed' });
  });

  it('is rejected for an artifact that an outcome does not have', async () => {
    const [outcome = ''] = await registry.admitAll([agentItem(registry, outcomeEnvelope(proofId))]);
    const { document, reasonHash, requestId } = item({
      proofId: outcome,
      artifactKind: 'passport',
    });
    // Inserts the request directly, because the engine would reject it.
    await db.sql`
      with request as (
        insert into svc.revocation_request
          (request_id, tenant_no, key_no, proof_id, artifact_kind, reason_hash, document)
        values (${requestId}::uuid, ${registry.tenantNo}, ${keyNo}, ${outcome}::uuid, 'passport', ${reasonHash},
          ${document})
        returning request_id, requested_at)
      insert into svc.revocation_pending select * from request`;
    await commit(requestId);
    expect(await entries(outcome)).toEqual([]);
  });

  it('is found by a running worker without an entry in the queue', async () => {
    await request(item());
    const worker = startAdmitWorker(
      registry.admit,
      { databaseUrl: db.urlFor('svc_worker'), redisUrl: null },
      { ...WORKER_DEFAULTS, requeueEveryMs: 20, staleAfterMs: 0 },
    );
    try {
      await expect.poll(entries, { timeout: 10_000 }).toHaveLength(1);
    } finally {
      await worker.close();
    }
  });

  it('stays pending when its append fails, and other requests of its job are appended', async () => {
    const [other = ''] = await registry.admitAll([registry.item()]);
    const bad = item();
    const good = item({ proofId: other });
    await request(bad);
    await request(good);
    const remove = await beforeRow(
      db,
      'insert on svc.log_entry',
      `if new.revokes = '${proofId}'::uuid then raise exception 'poison'; end if;`,
    );
    await expect(commit(bad.requestId, good.requestId)).rejects.toThrow(/poison/);
    await remove();
    expect(await entries(other)).toHaveLength(1);
    expect(await stateOf()).toBe('pending');
    await commit(bad.requestId);
    expect(await entries()).toHaveLength(1);
  });
});

it('concurrent revocations > share transactions, so that an admission waits for few of them', async () => {
  const jobs = 20;
  const proofIds = await registry.admitAll(Array.from({ length: jobs }, () => registry.item()));
  const items = proofIds.map((id) => item({ proofId: id }));
  for (const one of items) await request(one);
  const queueOf = (role: string) => ({ databaseUrl: db.urlFor(role), redisUrl: null });
  const queue = openAdmitQueue(queueOf('svc_engine'));
  const release = await holdLock(db.sql, APPEND_LOCK);
  const worker = startAdmitWorker(registry.admit, queueOf('svc_worker'));
  await worker.ready;
  const taken = async () => (await queue.stats()).jobs.active;
  // Adds the jobs in four steps: those of a later step cannot join the transaction that waits for the lock.
  for (let added = 0; added < jobs; added += jobs / 4) {
    const step = items.slice(added, added + jobs / 4);
    await Promise.all(step.map(({ requestId }) => queue.addRevocations([requestId])));
    await expect.poll(taken).toBeGreaterThanOrEqual(added + step.length);
  }
  await release();
  const committed = () => db.sql<{ transaction: string }[]>`
    select xmin::text as transaction from svc.log_entry where revokes = any(${proofIds}::uuid[])`;
  await expect.poll(committed, { timeout: 20_000 }).toHaveLength(jobs);
  const transactions = new Set((await committed()).map(({ transaction }) => transaction));
  expect(transactions.size).toBeLessThanOrEqual(2);
  await worker.close();
  await queue.close();
});

it('concurrent revocations > wait only once for the append lock', async () => {
  const proofIds = await registry.admitAll([registry.item(), registry.item()]);
  const items = proofIds.map((id) => item({ proofId: id }));
  for (const one of items) await request(one);
  const url = `${db.urlFor('svc_worker')}?lock_timeout=200`;
  const sql = connect(url, { application: 'test' });
  const warn = vi.fn();
  const log = Object.create(registry.admit.log, { warn: { value: warn } }) as Logger;
  const release = await holdLock(db.sql, APPEND_LOCK);
  const ids = items.map(({ requestId }) => requestId);
  await expect(groupRevocations({ sql, log })(ids)).rejects.toThrow('lock timeout');
  expect(warn).not.toHaveBeenCalled();
  await release();
  await sql.end();
  await commit(...ids);
});

it('revocation request for a proof of another tenant > is rejected by the API, the worker and the database', async () => {
  const stranger = await registry.addTenant('stranger');
  const key = await newKey('stranger');
  const one = item({ keyNo: key.keyNo });
  expect(await insertRevocationRequest(registry.engine, stranger, one)).toEqual({
    outcome: 'unknown_proof',
  });
  expect(await revocationState(registry.engine, stranger, proofId, 'proof')).toBeNull();

  // If an engine names the wrong tenant for a proof, the worker detects it.
  await db.sql`
    insert into svc.revocation_request
      (request_id, tenant_no, key_no, proof_id, artifact_kind, reason_hash, document)
    values (${one.requestId}::uuid, ${stranger}, ${key.keyNo}, ${proofId}::uuid,
      'proof', ${Buffer.from(one.reasonHash)}, ${Buffer.from(one.document)})`;
  await db.sql`insert into svc.revocation_pending values (${one.requestId}::uuid, now())`;
  await commit(one.requestId);
  expect(await entries()).toEqual([]);
});

const statusRow = (body: unknown, revokes = proofId) => ({
  leaf_index: 1e6,
  kind: 2,
  revokes,
  at: new Date(),
  body: Buffer.from(JSON.stringify(body)),
});

it('database check of revocation entries > allows the worker one entry per request', async () => {
  const one = item();
  await request(one);
  const sql = registry.admit.sql;
  const requested = {
    type: 'status',
    proof_id: proofId,
    artifact_kind: 'proof',
    reason_hash: Buffer.from(one.reasonHash).toString('hex'),
  };
  const append = (body: unknown, revokes?: string) =>
    sql`insert into svc.log_entry ${sql(statusRow(body, revokes))}`;
  const closed = item({ artifactKind: 'trust' });
  await request(closed);
  await withoutTriggers(
    db,
    `update svc.revocation_request set refused = 'processing_failed' where request_id = '${closed.requestId}'`,
  );
  const reason_hash = Buffer.from(closed.reasonHash).toString('hex');
  const [another] = await registry.admitAll([registry.item()]);
  await expect(append(requested, another)).rejects.toThrow(/no tenant requested/);
  for (const other of [
    {},
    { ...requested, artifact_kind: 'trust' },
    { ...requested, artifact_kind: 'trust', reason_hash },
    { ...requested, reason_hash: 'a'.repeat(64) },
    { ...requested, proof_id: 'b'.repeat(32) },
  ]) {
    await expect(append(other)).rejects.toThrow(/no tenant requested/);
  }
  await commit(one.requestId);
  await expect(append(requested)).rejects.toThrow(/revoked already/);
});

it('pending revocation request > cannot be changed, withdrawn or closed without a log entry', async () => {
  const waiting = item();
  await request(waiting);
  const [other = ''] = await registry.admitAll([registry.item()]);
  const done = item({ proofId: other });
  await request(done);
  await commit(done.requestId);
  const worker = registry.admit.sql;
  const refusals = [
    [waiting, /keeps its reason/],
    [done, /may only be erased/],
  ] as const;
  for (const [{ requestId }, why] of refusals) {
    await expect(worker`
      update svc.revocation_request set refused = 'processing_failed'
      where request_id = ${requestId}::uuid`).rejects.toThrow(/may only be closed/);
    await expect(db.sql`
      update svc.revocation_request set document = '\\x00'
      where request_id = ${requestId}::uuid`).rejects.toThrow(why);
    await expect(db.sql`
      delete from svc.revocation_request where request_id = ${requestId}::uuid`).rejects.toThrow();
  }
  await commit(waiting.requestId);
});

it('rejected revocation request > keeps its reason code', async () => {
  const rejected = item({ reasonHash: randomBytes(32) });
  await request(rejected);
  await commit(rejected.requestId);
  expect(await stateOf()).toMatchObject({ state: 'refused' });
  await expect(registry.admit.sql`
    update svc.revocation_request set refused = 'api_key_revoked'
    where request_id = ${rejected.requestId}::uuid`).rejects.toThrow(/may only be closed/);
});
