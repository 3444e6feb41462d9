import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { verifyEnvelopeOf } from './helpers/verify-envelope.js';
import { setAllowlisted, setLane } from '#sql/administration';
import { appendKeyChange } from '#sql/lifecycle';
import { nativeSha256 } from '#runtime/crypto';
import { toBase64Url } from '#protocol/bytes';
import { acceptIntake } from '#sql/intake';
import { entryRows, treeSize } from '#sql/log';
import { readProof } from '#sql/proofs';
import { pendingCount, pendingOlderThan, settledIn } from '#sql/settlement';
import { SigningKeyInactiveError } from '#workers/admit/errors';
import { processAdmissions } from '#workers/admit/process';
import { sweep } from '#workers/admit/sweep';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import { openRegistry, TENANT, type TestRegistry } from './helpers/registry.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterAll(() => db.drop());

describe('admission', () => {
  it('becomes a signed proof with a place in the log', async () => {
    const [id = ''] = await registry.admitAll([registry.item({ action: 'GET_USER_DETAILS' })]);
    const proof = await readProof(registry.engine, registry.tenantNo, id);
    expect(proof).not.toBeNull();
    expect(proof?.effect).toBe('ADMIT');
    const [entry] = await entryRows(registry.engine, proof!.leafIndex, proof!.leafIndex + 1);
    expect(Buffer.from(entry!.bytes).toString()).toContain(id);
    expect(verifyEnvelopeOf(proof!, registry.admit.signer.publicKey)).toBe(true);
    expect(await pendingCount(registry.engine)).toBe(0);
  });

  it('denied by policy is a proof too', async () => {
    const [id = ''] = await registry.admitAll([registry.item({ action: 'DELETE_AUDIT_LOG' })]);
    const settled = (await settledIn(registry.engine, [id])).get(id);
    expect(settled).toMatchObject({
      state: 'proved',
      effect: 'DENY',
      reasons: ['audit-log-is-kept'],
    });
  });

  it('binds a fixture that is known and one that is not', async () => {
    const [id = ''] = await registry.admitAll([
      registry.item({ proof_chain_fixture_ref: 'fixture-nobody-knows' }),
    ]);
    const proof = await readProof(registry.engine, registry.tenantNo, id);
    const aep = JSON.parse(proof!.aep!.toString()) as { evidence: unknown };
    expect(aep.evidence).toEqual({ fixture_ref: 'fixture-nobody-knows', fixture_hash: null });
  });

  it('delivered many times at once is proved once, with the same bytes', async () => {
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
    expect((await settledIn(registry.engine, ids)).size).toBe(20);
  });

  it('of the same body points to the first, also within a group and across groups at once', async () => {
    const first = registry.item({ intent_id: 'the-same' });
    const again = () => ({ ...registry.item({ intent_id: 'the-same' }) });
    const groups = await Promise.all([
      acceptIntake(registry.engine, [first, again(), registry.item()]),
      acceptIntake(registry.engine, [registry.item(), again()]),
      acceptIntake(registry.engine, [again(), again(), again()]),
    ]);
    const same = groups.flat().filter((_, index) => [0, 1, 4, 5, 6, 7].includes(index));
    const ids = new Set(
      same.map((one) => (one.outcome === 'idempotency_conflict' ? '' : one.proofId)),
    );
    expect(ids.size).toBe(1);
    expect(same.filter((one) => one.outcome === 'accepted')).toHaveLength(1);
    const accepted = groups
      .flat()
      .flatMap((one) => (one.outcome === 'accepted' ? one.proofId : []));
    await processAdmissions(registry.admit, accepted);
  });

  it('with an idempotency key is bound to its body', async () => {
    const item = { ...registry.item(), idempotencyKey: 'key-1' };
    expect(await acceptIntake(registry.engine, [item])).toMatchObject([{ outcome: 'accepted' }]);
    expect(await acceptIntake(registry.engine, [item])).toMatchObject([{ outcome: 'repeat' }]);
    const other = { ...registry.item(), idempotencyKey: 'key-1' };
    expect(await acceptIntake(registry.engine, [other])).toEqual([
      { outcome: 'idempotency_conflict' },
    ]);
    await processAdmissions(registry.admit, [item.proofId]);
  });

  it('that was never accepted is not signed, whatever a message says', async () => {
    const before = await treeSize(registry.engine);
    await processAdmissions(registry.admit, [registry.item().proofId]);
    expect(await treeSize(registry.engine)).toBe(before);
  });

  it('whose stored request was changed is set aside, and its neighbours are proved', async () => {
    const items = [registry.item(), registry.item(), registry.item()];
    await acceptIntake(registry.engine, items);
    const ids = items.map((item) => item.proofId);
    await db.sql`
      update svc.intake set request = ${Buffer.from('{"action":"OTHER"}')}
      where replace(proof_id::text, '-', '') = ${ids[1]!}`;
    await processAdmissions(registry.admit, ids);
    const settled = await settledIn(registry.engine, ids);
    expect(settled.get(ids[0]!)?.state).toBe('proved');
    expect(settled.get(ids[1]!)).toMatchObject({ state: 'refused', code: 'processing_failed' });
    expect(settled.get(ids[2]!)?.state).toBe('proved');
  });

  it("that makes its group's transaction fail is set aside alone", async () => {
    const items = [registry.item(), registry.item(), registry.item({ action: 'POISON' })];
    const ids = items.map((item) => item.proofId);
    await db.sql.unsafe(`
      create function public.poison() returns trigger language plpgsql as $$ begin
        if encode(new.aep, 'escape') like '%POISON%' then raise exception 'poison'; end if;
        return new; end $$;
      create trigger poison before insert on svc.proof for each row execute function public.poison()`);
    await acceptIntake(registry.engine, items);
    await processAdmissions(registry.admit, ids);
    await db.sql.unsafe('drop trigger poison on svc.proof; drop function public.poison()');
    const settled = await settledIn(registry.engine, ids);
    expect(ids.map((id) => settled.get(id)?.state)).toEqual(['proved', 'proved', 'refused']);
    // The culprit has its identity back: the same body may be sent again, and now it passes.
    const [again] = await registry.admitAll([{ ...items[2]!, proofId: registry.item().proofId }]);
    expect((await settledIn(registry.engine, [again!])).get(again!)?.state).toBe('proved');
  });
});

describe('what is settled', () => {
  it('stays settled: it cannot be made pending or refused again', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const again = registry.engine`
      insert into svc.intake_pending values (${id}::uuid, now())`;
    await expect(again).rejects.toThrow(/is settled/);
    const refused = registry.admit.sql`
      update svc.intake set refused = true where proof_id = ${id}::uuid`;
    await expect(refused).rejects.toThrow(/is not refused/);
  });
});

describe('what an intake pins', () => {
  it.each([
    ['another environment', `environment = 'live'`],
    ['a time to come', `accepted_at = now() + interval '1 year'`],
    ['a time before its policy was active', `accepted_at = now() - interval '1 year'`],
  ])('is checked, not believed: %s', async (_, change) => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await db.sql.unsafe(`update svc.intake set ${change} where proof_id = '${item.proofId}'`);
    await processAdmissions(registry.admit, [item.proofId]);
    const settled = await settledIn(registry.engine, [item.proofId]);
    expect(settled.get(item.proofId)).toMatchObject({
      state: 'refused',
      code: 'processing_failed',
    });
  });
});

describe('gates hold for what is accepted and not yet appended', () => {
  let waiting: string;
  beforeEach(async () => {
    const item = registry.item();
    waiting = item.proofId;
    await acceptIntake(registry.engine, [item]);
  });
  const outcome = async () => (await settledIn(registry.engine, [waiting])).get(waiting);

  it('the lane lock', async () => {
    await setLane(registry.admin, 'sandbox', false);
    await processAdmissions(registry.admit, [waiting]);
    await setLane(registry.admin, 'sandbox', true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'lane_locked' });
  });

  it("the environment's lock", async () => {
    await processAdmissions({ ...registry.admit, laneLocked: true }, [waiting]);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'lane_locked' });
  });

  it('the allowlist', async () => {
    await setAllowlisted(registry.admin, TENANT, false);
    await processAdmissions(registry.admit, [waiting]);
    await setAllowlisted(registry.admin, TENANT, true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'tenant_not_allowlisted' });
  });

  it('the signing key, and the work waits for a key that counts', async () => {
    const stranger = { ...registry.admit, keyId: 'A'.repeat(43) };
    await expect(processAdmissions(stranger, [waiting])).rejects.toThrow(SigningKeyInactiveError);
    expect(await outcome()).toBeUndefined();
    await processAdmissions(registry.admit, [waiting]);
    expect(await outcome()).toMatchObject({ state: 'proved' });
  });

  it('the sweeper finds what waits, and only that', async () => {
    const enqueued: string[][] = [];
    const options = {
      sql: registry.admit.sql,
      log: registry.admit.log,
      enqueue: (ids: string[]) => {
        enqueued.push(ids);
        return Promise.resolve();
      },
      groupSize: 100,
    };
    expect(await sweep({ ...options, olderThanMs: 60_000 })).toEqual({ enqueued: 0, next: null });
    expect(await sweep({ ...options, olderThanMs: 0 })).toEqual({ enqueued: 1, next: null });
    expect(enqueued).toEqual([[waiting]]);
    await processAdmissions(registry.admit, [waiting]);
    expect(await pendingOlderThan(registry.engine, 0, 10)).toEqual([]);
  });
});

describe('a retired key', () => {
  it('signs nothing more', async () => {
    const { keyId, signer } = registry.admit;
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await appendKeyChange(registry.admin, nativeSha256, {
      keyId,
      publicKey: toBase64Url(signer.publicKey),
      change: 'retire',
    });
    await expect(processAdmissions(registry.admit, [item.proofId])).rejects.toThrow(/retired/);
    expect(await pendingCount(registry.engine)).toBe(1);
  });
});
