import { PACKAGE_PARTS } from '#protocol/snapshot/manifest';
import type { CycleContext } from '../context.js';
import type { Published } from '../store/directory.js';
import { IndexBuilder } from '../store/index-builder.js';
import { changedRecords } from './records.js';
import { changedPackages, PublishedMembers } from './shares.js';
import { commitManifest, nextGeneration } from '../commit.js';

const CHANGES_AT_ONCE = 20_000;

/**
 * Withdraws failed proofs, and packages that contain them, before a registry that contradicts itself
 * stops the publisher. Tree, checkpoint, end of validity and verdict cursor stay as published; no
 * other verdict and no token or package change is applied.
 *
 * The result never asserts more, or longer, than the published snapshot, so it may be derived from an
 * untrusted registry.
 */
export async function withdrawFailed(ctx: CycleContext, published: Published): Promise<void> {
  const { manifest, validUntil } = published.opened;
  const now = ctx.clock.now();
  if (now >= validUntil) return; // the snapshot has expired
  const before = { size: manifest.tree_size, pins: manifest.index_parts };
  const index = new IndexBuilder(ctx, before.pins);
  const withdrawn: string[] = [];
  for await (const leaves of changedLeaves(ctx, manifest.verdict_cursor)) {
    for await (const records of changedRecords(ctx, before, before.size, leaves, {
      failedOnly: true,
    })) {
      await index.addRecords(records);
      withdrawn.push(...records.map(({ id }) => id));
    }
  }
  if (withdrawn.length === 0) return;
  const members = new PublishedMembers(ctx, await index.finish());
  for await (const records of changedPackages(ctx, members, withdrawn, { assertLess: true })) {
    await index.addRecords(records, PACKAGE_PARTS);
  }
  const pins = await index.finish();
  const generation = nextGeneration(published, now);
  await commitManifest(ctx, { ...manifest, generation, index_parts: pins }, published);
}

/** All leaves with a verdict after `cursor`: no later cycle could publish a remainder. */
async function* changedLeaves(ctx: CycleContext, cursor: number): AsyncGenerator<number[]> {
  for (let since = cursor; ;) {
    const changes = await ctx.registry.verdictChangesSince(since, CHANGES_AT_ONCE);
    ctx.progress();
    const last = changes.at(-1);
    if (last === undefined) return;
    yield changes.map((change) => change.leafIndex);
    since = last.verdictId;
  }
}
