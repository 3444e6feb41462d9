import { describe, expect, it } from 'vitest';
import { accepted } from '../fixtures/admissions.js';
import { beforeRow } from '../fixtures/database.js';
import { useRegistry } from '../fixtures/use-registry.js';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/intake';
import { treeSize } from '#sql/log/log';
import { asTenants } from '#sql/db/transaction';
import { processAdmissions } from '#workers/admit/process';
import { holdAppendLock, untilWaiting } from '../fixtures/append-lock.js';

const { db, registry } = useRegistry('file');

describe('admission', () => {
  it('gets one proof when it is delivered concurrently', async () => {
    const items = Array.from({ length: 20 }, () => registry.item());
    const before = await treeSize(registry.engine);
    await acceptIntake(registry.engine, items);
    const ids = items.map((item) => item.proofId);
    await Promise.all(
      [ids, [...ids].reverse(), ids.slice(5), ids].map((some) =>
        processAdmissions(registry.admit, some),
      ),
    );
    await processAdmissions(registry.admit, ids);
    expect(await treeSize(registry.engine)).toBe(before + 20);
    expect((await registry.readOutcomes(ids)).size).toBe(20);
  });

  it('is not signed unless it was accepted', async () => {
    const before = await treeSize(registry.engine);
    await processAdmissions(registry.admit, [registry.item().proofId]);
    expect(await treeSize(registry.engine)).toBe(before);
  });

  it('is rejected when its stored request was changed, and the others in its group are signed', async () => {
    const items = [registry.item(), registry.item(), registry.item()];
    await acceptIntake(registry.engine, items);
    const ids = items.map((item) => item.proofId);
    // The replacement is valid, so only the hash stored at acceptance reveals the change.
    const { request } = registry.item({ action: 'OTHER' });
    await db.sql`
      update svc.intake set request = ${Buffer.from(request)}
      where replace(proof_id::text, '-', '') = ${ids[1]!}`;
    await processAdmissions(registry.admit, ids);
    const settled = await registry.readOutcomes(ids);
    expect(settled.get(ids[0]!)?.state).toBe('proved');
    expect(settled.get(ids[1]!)).toMatchObject({ state: 'refused', code: 'processing_failed' });
    expect(settled.get(ids[2]!)?.state).toBe('proved');
  });

  it('is rejected when its stored request is not canonical, although the hash matches', async () => {
    const { request, ...item } = registry.item();
    const spelled = Buffer.from(` ${Buffer.from(request).toString()}`);
    const requestHash = nativeSha256(spelled);
    await acceptIntake(registry.engine, [{ ...item, request: spelled, requestHash }]);
    await processAdmissions(registry.admit, [item.proofId]);
    const settled = await registry.readOutcomes([item.proofId]);
    expect(settled.get(item.proofId)).toMatchObject({ state: 'refused' });
  });

  it('is rejected without the others in its group when it makes their transaction fail', async () => {
    const items = [registry.item(), registry.item(), registry.item({ action: 'POISON' })];
    const ids = items.map((item) => item.proofId);
    const remove = await beforeRow(
      db,
      'insert on svc.log_entry',
      `if new.action = 'POISON' then raise exception 'poison'; end if;`,
    );
    await acceptIntake(registry.engine, items);
    await processAdmissions(registry.admit, ids);
    await remove();
    const settled = await registry.readOutcomes(ids);
    expect(ids.map((id) => settled.get(id)?.state)).toEqual(['proved', 'proved', 'refused']);
    // The rejected item's deduplication key is free: its body may be sent again, and now succeeds.
    const [again] = await registry.admitAll([{ ...items[2]!, proofId: registry.item().proofId }]);
    expect((await registry.readOutcomes([again!])).get(again!)?.state).toBe('proved');
  });
});

describe('committed admission', () => {
  it('cannot be made pending or rejected again', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const again = asTenants(
      registry.engine,
      [registry.tenantNo],
      (tx) => tx`insert into svc.intake_pending values (${id}::uuid, now())`,
    );
    await expect(again).rejects.toThrow(/has an outcome/);
    const refused = registry.admit.sql`
      update svc.intake set refused = true where proof_id = ${id}::uuid`;
    await expect(refused).rejects.toThrow(/is not refused/);
  });
});

describe('columns stored at acceptance', () => {
  it.each([
    ['another environment', `environment = 'live'`],
    ['a time in the future', `accepted_at = now() + interval '1 year'`],
    ['a time before its policy was active', `accepted_at = now() - interval '1 year'`],
  ])('are checked before signing: %s', async (_, change) => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await db.sql.unsafe(`update svc.intake set ${change} where proof_id = '${item.proofId}'`);
    await processAdmissions(registry.admit, [item.proofId]);
    const settled = await registry.readOutcomes([item.proofId]);
    expect(settled.get(item.proofId)).toMatchObject({
      state: 'refused',
      code: 'processing_failed',
    });
  });
});

it('concurrent workers > append one after the other, without a gap in the log', async () => {
  const ids = [
    await accepted(registry, registry.item()),
    await accepted(registry, registry.item()),
  ];
  const lock = await holdAppendLock(db.sql);
  const working = ids.map((id) => processAdmissions(registry.admit, [id]));
  await untilWaiting(db.sql, 2);
  await lock.commit();
  await Promise.all(working);
  const settled = await registry.readOutcomes(ids);
  const indexes = ids.map((id) => {
    const one = settled.get(id);
    return one?.state === 'proved' ? one.leafIndex : -1;
  });
  expect(indexes.sort((a, b) => a - b)).toEqual([lock.size, lock.size + 1]);
});
