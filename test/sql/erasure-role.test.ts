import { describe, expect, it } from 'vitest';
import { revocationReasonBytes } from '#protocol/entries';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { transaction } from '#sql/db/transaction';
import { erasePayloads } from '#sql/erasure/erase';
import { eraseKeysAfter, eraseTenantTraces, type KeyPlace, unerasedOf } from '#sql/erasure/tenant';
import { insertRevocationRequest } from '#sql/lifecycle/revocations';
import { itemWith } from '../fixtures/admissions.js';
import { storeBatch, batchItem } from '../fixtures/batch-items.js';
import { issueKey, workBatches } from '../fixtures/engine.js';
import { ERASURE_ORDER, eraseProof } from '../fixtures/erase.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

const eraser = () => db.as('svc_erase');

const erase = (proofId: string) => eraseProof(db, proofId);

async function admitOne(): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item()]);
  return id;
}

const asEraser = (statement: string) => eraser().unsafe(statement);
const keys = async (): Promise<string[]> =>
  (await db.sql<{ key: string }[]>`select key from svc.idempotency_key order by key`).map(
    ({ key }) => key,
  );

async function admit(key: string): Promise<IntakeItem> {
  const item = { ...registry.item(), idempotencyKey: key };
  await registry.admitAll([item]);
  return item;
}

/** Stores and processes a batch with these items and an invalid item. */
async function batch(idempotencyKey: string, items: IntakeItem[]): Promise<string> {
  const problems = new Map([[items.length, '{"status":400}']]);
  const made = await storeBatch(registry, items.map(batchItem), { idempotencyKey, problems });
  if (made.outcome !== 'accepted') throw new Error(made.outcome);
  await workBatches(registry);
  return made.batchId;
}

const problemsOf = (batchId: string): PromiseLike<unknown> => db.sql`
    select items_hash is null as unhashed, problems is null as clear from svc.batch
    join svc.batch_part using (batch_id) where batch_id = ${batchId.slice(6)}::uuid`;

/** Even with arbitrary SQL, the erase role can remove only data of erased admissions. */
describe('database role svc_erase', () => {
  // Must run first: the tenant has no erasure yet.
  it('cannot erase a batch without admissions unless its tenant was erased', async () => {
    const id = await batch('invalid-batch', []);
    await admit('kept');
    const tenantNo = await registry.addTenant('rival');
    const [other = ''] = await registry.admitAll([
      { ...itemWith(registry, { tenant_id: 'rival' }), tenantNo },
    ]);
    await erase(other);
    for (const change of ['batch set items_hash', 'batch_part set problems']) {
      await expect(asEraser(`update svc.${change} = null`)).rejects.toThrow(/was erased/);
      await expect(asEraser(`update svc.${change} = sha256('x')`)).rejects.toThrow(
        /only be erased/,
      );
    }
    // The erase command skips the batch and succeeds.
    const traces = () => transaction(eraser(), (tx) => eraseTenantTraces(tx, registry.tenantNo));
    await traces();
    expect(await problemsOf(id)).toEqual([{ unhashed: false, clear: false }]);
    expect(await keys()).toEqual(['invalid-batch', 'kept']);
    await erase((await admit('gone')).proofId);
    await traces();
    expect(await problemsOf(id)).toEqual([{ unhashed: true, clear: true }]);
    expect(await keys()).toEqual(['kept']);
  });

  it('can delete only idempotency keys of erased admissions', async () => {
    const erased = await admit('erased');
    await admit('other');
    const open = { ...registry.item(), idempotencyKey: 'open' };
    await acceptIntake(registry.engine, [open]);
    await db.sql`update svc.tenant set allowlisted = false`;
    await admit('refused');
    await db.sql`update svc.tenant set allowlisted = true`;
    const item = registry.item();
    await batch('batch', [item]);
    const kept = ['batch', 'kept', 'open', 'other', 'refused'];
    expect(await keys()).toEqual([...kept, 'erased'].sort());

    await asEraser('delete from svc.idempotency_key');
    expect(await keys()).toEqual([...kept, 'erased'].sort());
    await transaction(eraser(), (tx) => erasePayloads(tx, [erased.proofId], ERASURE_ORDER));
    await asEraser('delete from svc.idempotency_key');
    expect(await keys()).toEqual(kept);

    // The batch's own key is deletable after the erasure of one item.
    await erase(item.proofId);
    expect(await keys()).toEqual(kept.filter((key) => key !== 'batch'));
    // The deduplication key of a rejected admission is deletable after its erasure.
    const [refused] = await db.sql<{ id: string }[]>`
      select replace(proof_id::text, '-', '') as id from svc.refusal`;
    const detail = asEraser(`update svc.refusal set detail = ''`);
    await expect(detail).rejects.toThrow(/may only be erased/);
    await erase(refused!.id);
    const replaced = asEraser(`update svc.refusal set detail = 'other'`);
    await expect(replaced).rejects.toThrow(/may only be erased/);
    expect(await keys()).toEqual(['kept', 'open', 'other']);
    // The erasure of an item of another batch does not count.
    await batch('whole', [registry.item()]);
    await expect(asEraser(`update svc.batch set items_hash = null`)).rejects.toThrow(/was erased/);
  });

  it('finds the admissions of a tenant and deletes its keys in groups', async () => {
    const { tenantNo } = registry;
    const gone = await admit('in a group');
    await registry.admitAll([{ ...registry.item(), tenantNo: await registry.addTenant('next') }]);
    await admit('in the next group');
    const found: string[] = [];
    for await (const ids of unerasedOf(eraser(), tenantNo, 2, 3)) found.push(...ids);
    const own = await db.sql<{ id: string }[]>`
      select replace(proof_id::text, '-', '') as id from svc.intake
      where tenant_no = ${tenantNo} and request is not null order by proof_id`;
    expect(found).toEqual(own.map(({ id }) => id));
    await transaction(eraser(), (tx) => erasePayloads(tx, [gone.proofId], ERASURE_ORDER));
    const before = await keys();
    for (let place: KeyPlace | null = { lane: 0, key: '' }; place !== null;) {
      const after: KeyPlace = place;
      place = await transaction(eraser(), (tx) => eraseKeysAfter(tx, tenantNo, after, 1));
    }
    expect(await keys()).toEqual(before.filter((key) => key !== 'in a group'));
  });

  it('keeps the idempotency key of a body that was accepted again after its erasure', async () => {
    const first = await admit('again');
    await erase(first.proofId);
    await registry.admitAll([{ ...first, proofId: registry.item().proofId }]);
    await asEraser('delete from svc.idempotency_key');
    expect(await keys()).toContain('again');
  });

  it('cannot erase the reason of a pending revocation', async () => {
    await issueKey(registry, { scopes: ['lifecycle'] });
    const [key] = await db.sql<{ keyNo: number }[]>`select key_no as "keyNo" from svc.api_key`;
    const { proofId } = await admit('revoked');
    await erase(proofId);
    const reason = {
      proof_id: proofId,
      artifact_kind: 'proof' as const,
      reason: 'wrong',
      actor: 'auditor',
      salt: '5'.repeat(64),
    };
    const document = revocationReasonBytes(reason);
    await insertRevocationRequest(registry.engine, registry.tenantNo, {
      requestId: registry.item().proofId,
      keyNo: key!.keyNo,
      proofId,
      artifactKind: 'proof',
      document,
      reasonHash: nativeSha256(document),
    });
    await expect(asEraser('update svc.revocation_request set document = null')).rejects.toThrow(
      /is pending and keeps its reason/,
    );
  });

  it.each([
    ['', (item: IntakeItem) => acceptIntake(registry.engine, [item])],
    [' of a batch', (item: IntakeItem) => storeBatch(registry, [batchItem(item, 0)])],
  ])('cannot record an erasure of a pending admission%s', async (_, accept) => {
    const item = registry.item();
    await accept(item);
    const id = item.proofId;
    const erasing = transaction(eraser(), async (tx) => {
      await tx`insert into svc.erasure (proof_id, actor, reason_ref) values (${id}, 'ada', 'CASE-1')`;
      await tx`
        update svc.intake set request = null, request_hash = null, seed = null where proof_id = ${id}`;
    });
    await expect(erasing).rejects.toThrow(/has no outcome/);
  });
});

describe('database role svc_erase in a transaction of its own', () => {
  const where = (id: string): string => `where proof_id = '${id}'`;
  const record = (id: string): string =>
    `insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
     select proof_id, leaf_index, 'ada', 'x' from svc.log_entry ${where(id)};`;
  const NULLED =
    'signature = null, reasons = null, budgets = null, action = null, intent_id = null';
  const intake = (id: string): string =>
    `update svc.intake set request = null, request_hash = null, seed = null ${where(id)};`;
  const run = (statements: string) => eraser().begin((tx) => tx.unsafe(statements));

  const refused: [what: string, statements: (id: string) => string, why: RegExp][] = [
    [
      'an erasure of the log_entry columns without a record',
      (id) => `update svc.log_entry set ${NULLED} ${where(id)}`,
      /no record/,
    ],
    ['an erasure of the intake columns without a record', (id) => intake(id), /no record/],
    ['a record without an erasure', (id) => record(id), /is not erased/],
    [
      'a record with an erasure of the log_entry columns only',
      (id) => `${record(id)} update svc.log_entry set ${NULLED} ${where(id)}`,
      /is not erased/,
    ],
    [
      'an erasure of the signature only',
      (id) => `${record(id)} update svc.log_entry set signature = null ${where(id)}`,
      /only be erased/,
    ],
    [
      'a replaced signature',
      (id) => `${record(id)} update svc.log_entry set signature = '\\x00' ${where(id)}`,
      /only be erased/,
    ],
    [
      'a changed effect',
      (id) => `update svc.log_entry set effect = 'DENY' ${where(id)}`,
      /permission denied/,
    ],
    ['a changed leaf', () => `update svc.log_entry set at = now()`, /permission denied/],
    ['a deleted leaf', () => `delete from svc.log_entry`, /permission denied/],
    [
      'an erasure of the reason of a revocation without a record',
      () => `update svc.revocation_reason set document = null`,
      /no record/,
    ],
    [
      'a replaced reason of a revocation',
      () => `update svc.revocation_reason set document = '{}'`,
      /only be erased/,
    ],
    ['a changed verdict', () => `update svc.verdict set outcome = 'pass'`, /permission denied/],
    [
      'a record with a wrong leaf index',
      (id) => `insert into svc.erasure values ('${id}', 99, now(), 'ada', 'x');
        ${intake(id)} update svc.log_entry set ${NULLED} ${where(id)}`,
      /is not erased/,
    ],
  ];

  it.each(refused)('cannot commit %s', async (_, statements, why) => {
    const id = await admitOne();
    await registry.revoke(id);
    await expect(run(statements(id))).rejects.toThrow(why);
  });

  it('cannot commit a record with a leaf index for a rejected admission', async () => {
    await db.sql`update svc.tenant set allowlisted = false`;
    const id = await admitOne();
    await db.sql`update svc.tenant set allowlisted = true`;
    const recorded = run(
      `insert into svc.erasure values ('${id}', 0, now(), 'ada', 'x'); ${intake(id)}`,
    );
    await expect(recorded).rejects.toThrow(/is not erased/);
  });

  it('cannot restore an erased payload or delete the record of an erasure', async () => {
    const id = await admitOne();
    await erase(id);
    await expect(run(`update svc.log_entry set signature = '\\x01' ${where(id)}`)).rejects.toThrow(
      /only be erased/,
    );
    await expect(run(`delete from svc.erasure`)).rejects.toThrow(/permission denied/);
    await expect(db.sql`delete from svc.erasure`).rejects.toThrow(/append-only/);
    await expect(
      run(`update svc.intake set request = '\\x01', request_hash = sha256('a'), seed = sha256('a')
        ${where(id)}`),
    ).rejects.toThrow(/only be erased/);
  });

  it('does not weaken the checks that new rows have their payload', async () => {
    for (const payload of [
      `null, sha256('x'), sha256('x'), null`,
      `'x', null, sha256('x'), null`,
      `'x', sha256('x'), null, null`,
      `'x', sha256('x'), sha256('x'), gen_random_uuid()`,
    ]) {
      const inserted = db.sql
        .unsafe(`insert into svc.intake (proof_id, tenant_no, lane, environment,
          accepted_at, policy_digest, request, request_hash, seed, approves)
        select gen_random_uuid(), tenant_no, lane, environment, accepted_at, policy_digest, ${payload}
        from svc.intake limit 1`);
      await expect(inserted).rejects.toThrow(/has no payload/);
    }
    const reason = db.sql`insert into svc.revocation_reason (reason_hash) values (sha256('x'))`;
    await expect(reason).rejects.toThrow(/requires a document/);
    const request = db.sql`
      insert into svc.revocation_request (request_id, tenant_no, key_no, proof_id, artifact_kind, reason_hash)
      select gen_random_uuid(), tenant_no, 1, proof_id, 'proof', sha256('x') from svc.log_entry
      where kind = 1 limit 1`;
    await expect(request).rejects.toThrow(/requires a document/);
    const batch = db.sql`
      insert into svc.batch (batch_id, tenant_no, key_no, total, request_id, accepted_at)
      select gen_random_uuid(), tenant_no, 1, 1, 'r', now() from svc.tenant limit 1`;
    await expect(batch).rejects.toThrow(/requires the hash/);
  });
});
