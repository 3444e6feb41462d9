import { randomBytes } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, it } from 'vitest';
import { revocationReasonBytes } from '#protocol/entries';
import type { ArtifactKind } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { insertRevocationRequest, revocationState } from '#sql/lifecycle/revocations';
import { commitRevocations } from '#workers/lifecycle/revocations';
import { scrub } from '#workers/verify/scrub';
import { scanExpiries } from '#workers/verify/expiries';
import { adminOn, type AdminLine } from '../fixtures/admin.js';
import { untilWaiting } from '../fixtures/append-lock.js';
import { eraseProof } from '../fixtures/erase.js';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { valuesHolding } from '../fixtures/marks.js';
import { TENANT } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

/** Requests that run concurrently with an erasure. */

const MARK = 'Maria-Markworth';

const db = useDatabase('file');
let world: EventfulRegistry;
let admin: AdminLine;

beforeAll(async () => {
  world = await EventfulRegistry.open(db);
  admin = adminOn(db, { url: db.urlFor('svc_erase') });
});

async function request(proofId: string, artifactKind: ArtifactKind): Promise<string> {
  const requestId = uuidv7().replaceAll('-', '');
  const salt = randomBytes(32).toString('hex');
  const document = revocationReasonBytes({
    proof_id: proofId,
    artifact_kind: artifactKind,
    reason: `${MARK} asked`,
    actor: 'auditor',
    salt,
  });
  const reasonHash = nativeSha256(document);
  const { registry, keyNo } = world;
  const item = { requestId, keyNo, proofId, artifactKind, document, reasonHash };
  expect(await insertRevocationRequest(registry.engine, registry.tenantNo, item)).toMatchObject({
    outcome: 'stored',
  });
  return requestId;
}

const line = ['erase', 'tenant', TENANT, '--reason', 'CASE-1', '--confirm', TENANT];

const commit = (id: string): Promise<void> => commitRevocations(world.registry.admit, [id]);
const stateOf = (proofId: string, kind: ArtifactKind) =>
  revocationState(world.registry.engine, world.registry.tenantNo, proofId, kind);

describe('pending revocation', () => {
  it('keeps its reason and is appended when other reasons of its proof are erased', async () => {
    const [id = ''] = await world.admit(1);
    await commit(await request(id, 'certificate'));
    await eraseProof(db, id);
    await commit(await request(id, 'passport'));
    const waits = await request(id, 'trust');

    // One revocation was pending, so the command has to run again.
    expect(await admin(...line)).toMatchObject({ code: 1, json: { unsettled: 1 } });
    await commit(waits);
    expect(await stateOf(id, 'trust')).toMatchObject({ state: 'revoked' });
    expect(await admin(...line)).toMatchObject({ code: 0, json: { unsettled: 0 } });
    expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
  });

  it('keeps its reason when it was requested while the erasure ran', async () => {
    const [id = ''] = await world.admit(1);
    const holding = await db.sql.reserve();
    await holding`begin`;
    await holding`select from svc.log_entry where proof_id = ${id}::uuid for no key update`;
    const erasing = eraseProof(db, id);
    await untilWaiting(db.sql);
    const waits = await request(id, 'proof');
    await holding`rollback`;
    holding.release();
    expect(await erasing).toMatchObject([{ isNew: true }]);
    await commit(waits);
    expect(await stateOf(id, 'proof')).toMatchObject({ state: 'revoked' });
  });
});

describe('revocation reason that arrives during or after the erasure of its proof', () => {
  const gone = async (): Promise<void> => {
    expect(await admin(...line)).toMatchObject({ code: 0, json: { unsettled: 0 } });
    expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
  };

  it('is erased by the next erasure of its tenant when a worker appended it in between', async () => {
    const [id = ''] = await world.admit(1);
    await commit(await request(id, 'certificate'));
    const waits = await request(id, 'passport');
    await commit(await request(id, 'trust'));
    const holding = await db.sql.reserve();
    await holding`begin`;
    await holding`select from svc.revocation_reason where document is not null for no key update`;
    await commit(waits);
    const erasing = eraseProof(db, id);
    await untilWaiting(db.sql);
    await commit(await request(id, 'proof'));
    await holding`rollback`;
    holding.release();
    expect(await erasing).toMatchObject([{ isNew: true }]);
    await gone();
  });
});

describe('leaf that is erased after a scrubber read it', () => {
  it.each([
    ['passed before', false],
    ['failed before and was repaired', true],
  ])('gets no pass verdict when it %s', async (_, isRepaired) => {
    const [id = ''] = await world.admit(1);
    const { verify } = world.registry;
    const flip = `update svc.intake set seed = set_byte(seed, 5, get_byte(seed, 5) # 1)
      where proof_id = '${id}'`;
    const outcome = async (): Promise<string> => {
      const [row] = await db.sql<{ outcome: string }[]>`
        select outcome from svc.verdict where not frontier
          and first_index = (select leaf_index from svc.log_entry where proof_id = ${id}::uuid)
        order by verdict_id desc limit 1`;
      return row?.outcome ?? 'none';
    };
    if (isRepaired) {
      await world.tamper(flip);
      await scrub(verify, 1_000);
      expect(await outcome()).toBe('fail');
      await world.tamper(flip);
    }
    let isRead = false;
    const sql = new Proxy(verify.sql, {
      get: (pool, name) =>
        name !== 'reserve'
          ? (Reflect.get(pool, name) as unknown)
          : async () => {
              // The scrubber has read everything, and written nothing yet.
              if (!isRead) {
                isRead = true;
                await eraseProof(db, id);
                await scanExpiries(verify, 100);
              }
              return pool.reserve();
            },
    });
    await scrub({ ...verify, sql }, 1_000);
    expect(isRead).toBe(true);
    expect(await outcome()).toBe(isRepaired ? 'fail' : 'erased');
    await scrub(verify, 1_000);
    expect(await outcome()).toBe('erased');
  });
});
