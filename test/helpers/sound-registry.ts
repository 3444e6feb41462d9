import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { tokenHash } from '#protocol/snapshot/share';
import { formatVkey } from '#protocol/note';
import type { Publisher } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptBatch } from '#sql/batches/accept';
import { acceptIntake } from '#sql/admissions/accept';
import { ensureKeyActive } from '#sql/lifecycle/entries';
import { revokeShareToken } from '#sql/lifecycle/share-tokens';
import { scanExpiries } from '#workers/verify/expiries';
import { agentItem, outcomeEnvelope } from './agent.js';
import type { TestDatabase } from './database.js';
import { workBatches } from './engine.js';
import { EventfulRegistry } from './eventful-registry.js';
import type { TestRegistry } from './registry.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from './snapshot.js';
import { sqlPublisher } from './sql-publisher.js';

export interface SoundRegistry {
  world: EventfulRegistry;
  logVkey: string;
  snapshotVkey: string;
  publisher: Publisher;
  snapshotKey: ReturnType<typeof testKey>;
}

/**
 * A registry and its snapshot in which everything happened that can, and nothing is wrong: two tiles
 * of proofs and denials, an outcome, artifacts revoked and over, keys, packages, tokens that live, ended and are
 * over, a batch, an admission that was refused and one that waits.
 */
export async function soundRegistry(
  db: TestDatabase,
  directory: string,
  beforeTheLast: () => Promise<void> = () => Promise.resolve(),
): Promise<SoundRegistry> {
  const world = await EventfulRegistry.open(db);
  const { registry } = world;
  const [logKey, snapshotKey] = [testKey(), testKey()];
  const publisher = sqlPublisher(db.as('svc_publisher'), { directory, logKey, snapshotKey });
  const publish = async (): Promise<void> => {
    await registry.verifyAll();
    await scanExpiries(registry.verify, 100);
    const { outcome } = await publisher.runCycle();
    if (outcome !== 'published') throw new Error(outcome);
  };
  await world.begin(publish);
  world.fresh.push(...(await world.admit(40)));
  world.fresh.push(...(await world.admit(1, { action: 'DELETE_AUDIT_LOG' })));
  const outcome = outcomeEnvelope(world.old[0]!, { result: 'failed' });
  world.fresh.push(...(await registry.admitAll([agentItem(registry, outcome)])));
  await world.revoke(world.old[5]!, 'proof');
  await world.setPassportValidity(1);
  world.fresh.push(...(await world.admit(1)));
  await world.setPassportValidity(null);
  const packageId = await world.bundle([world.fresh[0]!, world.fresh[1]!]);
  await world.share({ artifactKind: 'package', packageId });
  await world.share({ artifactKind: 'trust', proofId: world.old[30]! }, Date.now() + 1_000);
  await revokeShareToken(registry.engine, registry.tenantNo, {
    tokenHash: tokenHash(nativeSha256, world.tokens[1]!),
    keyNo: world.keyNo,
  });
  await batchOf(world, 5);
  await validBatch(world);
  const { publicKey } = testKey();
  await ensureKeyActive(registry.admin, nativeSha256, {
    keyId: jwkThumbprint(nativeSha256, publicKey),
    publicKey: toBase64Url(publicKey),
  });
  await refuseOne(db, world);
  await acceptIntake(registry.engine, [registry.item()]);
  await sleep(1_100);
  await beforeTheLast();
  await publish();
  return {
    world,
    publisher,
    snapshotKey,
    logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
    snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
  };
}

async function batchOf(world: EventfulRegistry, count: number): Promise<void> {
  const { registry } = world;
  const items = Array.from({ length: count }, () => registry.item());
  const itemsHash = createHash('sha256').update(randomBytes(8)).digest();
  await accept(world, items, itemsHash, new Map([[count, '{"status":400}']]));
}

/** Of which the database can say what its items hash to: two, and the first of them again. */
async function validBatch(world: EventfulRegistry): Promise<void> {
  const { registry } = world;
  const [a, b] = [registry.item(), registry.item()];
  const items = [a, b, { ...a, proofId: registry.item().proofId }];
  const hash = createHash('sha256');
  for (const item of items) hash.update(Buffer.of(item.lane)).update(item.requestHash);
  await accept(world, items, hash.digest(), new Map());
}

async function accept(
  { registry, keyNo }: EventfulRegistry,
  given: readonly ReturnType<TestRegistry['item']>[],
  itemsHash: Buffer,
  problems: Map<number, string>,
): Promise<void> {
  const items = given.map((item, index) => ({
    ...item,
    index,
    requestHash: Buffer.from(item.requestHash).toString('hex'),
  }));
  const made = await acceptBatch(
    registry.engine,
    {
      batchId: `batch_${registry.item().proofId}`,
      tenantNo: registry.tenantNo,
      keyNo,
      itemsHash,
      requestId: 'r',
      idempotencyKey: null,
      total: items.length + problems.size,
      items,
      problems,
      salts: randomBytes(32 * items.length),
    },
    { admissions: 1000, batches: 1000, own: 1000 },
  );
  if (made.outcome !== 'accepted') throw new Error(made.outcome);
  await workBatches(registry);
}

/** Its tenant lost its place on the allowlist after it was accepted. */
async function refuseOne(db: TestDatabase, { registry }: EventfulRegistry): Promise<void> {
  const set = (allowed: boolean) => db.sql`
    update svc.tenant set allowlisted = ${allowed} where tenant_no = ${registry.tenantNo}`;
  await set(false);
  await registry.admitAll([registry.item()]);
  await set(true);
}
