import { beforeAll, describe, expect, it } from 'vitest';
import { revocationReasonBytes } from '#protocol/entries';
import { nativeSha256 } from '#runtime/crypto/node';
import { eraseTenantTraces, erasePayloads } from '#sql/erasure/erase';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { insertRevocationRequest } from '#sql/lifecycle/revocations';
import { transaction } from '#sql/db/transaction';
import { storeBatch, batchItem } from '../fixtures/batch-items.js';
import { issueKey, workBatches } from '../fixtures/engine.js';
import { ERASURE_ORDER, eraseProof } from '../fixtures/erase.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** Even with arbitrary SQL, the erase role can remove only data of erased admissions. */

const { db, registry } = useRegistry('file');
let keyNo: number;

beforeAll(async () => {
  await issueKey(registry, { scopes: ['lifecycle'] });
  const [key] = await db.sql<{ key_no: number }[]>`select key_no from svc.api_key limit 1`;
  keyNo = key!.key_no;
});

const asEraser = (statement: string) => db.as('svc_erase').unsafe(statement);
const keys = async (): Promise<string[]> =>
  (await db.sql<{ key: string }[]>`select key from svc.idempotency_key order by key`).map(
    ({ key }) => key,
  );

async function admit(key: string, fields = {}): Promise<IntakeItem> {
  const item = { ...registry.item(fields), idempotencyKey: key };
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

describe('database role svc_erase', () => {
  // Must run first: the tenant has no erasure yet.
  it('cannot erase a batch without admissions unless its tenant was erased', async () => {
    const id = await batch('invalid-batch', []);
    await admit('kept');
    for (const change of ['batch set items_hash', 'batch_part set problems']) {
      await expect(asEraser(`update svc.${change} = null`)).rejects.toThrow(/was erased/);
    }
    // The erase command skips the batch and succeeds.
    const traces = () =>
      transaction(db.as('svc_erase'), (tx) => eraseTenantTraces(tx, registry.tenantNo));
    await traces();
    expect(await problemsOf(id)).toEqual([{ unhashed: false, clear: false }]);
    expect(await keys()).toEqual(['invalid-batch', 'kept']);
    await eraseProof(db, (await admit('gone')).proofId);
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
    await transaction(db.as('svc_erase'), (tx) =>
      erasePayloads(tx, [erased.proofId], ERASURE_ORDER),
    );
    await asEraser('delete from svc.idempotency_key');
    expect(await keys()).toEqual(kept);

    // The batch's own key is deletable after the erasure of one item.
    await eraseProof(db, item.proofId);
    expect(await keys()).toEqual(kept.filter((key) => key !== 'batch'));
    // The deduplication key of a rejected admission is deletable after its erasure.
    const [refused] = await db.sql<{ id: string }[]>`
      select replace(proof_id::text, '-', '') as id from svc.refusal`;
    await eraseProof(db, refused!.id);
    expect(await keys()).toEqual(['kept', 'open', 'other']);
  });

  it('keeps the idempotency key of a body that was accepted again after its erasure', async () => {
    const first = await admit('again');
    await eraseProof(db, first.proofId);
    await registry.admitAll([{ ...first, proofId: registry.item().proofId }]);
    await asEraser('delete from svc.idempotency_key');
    expect(await keys()).toContain('again');
  });

  it('cannot erase the reason of a pending revocation', async () => {
    const { proofId } = await admit('revoked');
    await eraseProof(db, proofId);
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
      keyNo,
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
    const erasing = transaction(db.as('svc_erase'), async (tx) => {
      await tx`insert into svc.erasure (proof_id, actor, reason_ref) values (${id}, 'ada', 'CASE-1')`;
      await tx`
        update svc.intake set request = null, request_hash = null, seed = null where proof_id = ${id}`;
    });
    await expect(erasing).rejects.toThrow(/has no outcome/);
  });
});
