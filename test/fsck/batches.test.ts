import { expect, it } from 'vitest';
import { Findings } from '#fsck/findings';
import { checkBatches } from '#fsck/registry/admissions';
import type { RegistryContext } from '#fsck/registry/context';
import { fromHex } from '#protocol/bytes';
import { nativeSha256 } from '#runtime/crypto/node';
import { batchItem, storeBatch } from '../fixtures/batch-items.js';
import { withoutTriggers } from '../fixtures/database.js';
import { workBatches } from '../fixtures/engine.js';
import { eraseProof } from '../fixtures/erase.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

it('checkBatches > accepts the hash of a batch that follows batches with rejected items, and no other hash', async () => {
  const [admitted, rejected] = [batchItem(registry.item(), 0), batchItem(registry.item(), 1)];
  const pausing = { ...registry.admit, admissionsPaused: true };
  const paused = Object.create(registry, { admit: { value: pausing } }) as typeof registry;
  const firstRejected = rejected.proofId;
  const send = async (of: typeof registry): Promise<string> => {
    const items = [admitted, rejected];
    const hashed = items.map(({ requestHash }) => fromHex(`01${requestHash}`));
    const itemsHash = Buffer.from(nativeSha256(Buffer.concat(hashed)));
    const outcome = await storeBatch(registry, items, { itemsHash });
    if (outcome.outcome !== 'accepted') throw new Error(outcome.outcome);
    await workBatches(of);
    for (const item of items) item.proofId = registry.item().proofId;
    return outcome.batchId;
  };
  const batches = [await send(paused), await send(paused), await send(registry)];
  const faults = async (): Promise<string[]> => {
    const findings = new Findings();
    const ctx: Pick<RegistryContext, 'findings' | 'sql'> = { sql: db.as('svc_fsck'), findings };
    await checkBatches(ctx as RegistryContext);
    return findings.state.reported.map(({ where }) => where.replace(/.*=/, ''));
  };
  expect(await faults()).toEqual([]);
  const last = batches[2]!.slice('batch_'.length);
  const [stored] = await db.sql<[{ hash: string }]>`
    select encode(items_hash, 'hex') as hash from svc.batch where batch_id = ${last}::uuid`;
  const change = (hash: string) =>
    withoutTriggers(db, `update svc.batch set items_hash = ${hash} where batch_id = '${last}'`);
  await change('sha256(items_hash)');
  expect(await faults()).toEqual([batches[2]]);
  await change(`decode('${stored.hash}', 'hex')`);
  await eraseProof(db, firstRejected);
  // This hash follows from hashes that the erasure deleted.
  expect(await faults()).toEqual([]);
});
