import { PACKAGE_PARTS } from '#protocol/snapshot/manifest';
import type { CycleContext } from '../context.js';
import type { Published } from '../store/directory.js';
import { IndexBuilder } from '../store/index-builder.js';
import { changedRecords } from './changed-records.js';
import { changedPackages, PublishedMembers } from './packages.js';
import { nextGeneration, putManifest } from '../store/put-manifest.js';

const CHANGES_AT_ONCE = 20_000;

/**
 * For a publisher that must stop because the registry contradicts itself: what is published stays,
 * tree, checkpoint and end of validity, but proofs that have failed verification since assert
 * nothing any more, and neither do packages that they are in. The bookmark of verdicts stays too,
 * because of the others none is taken up; of tokens and packages, no change is.
 *
 * Nothing in it can make anything assert more, or longer, than what is published already, so it may
 * follow from a registry that is not to be believed otherwise.
 */
export async function withdrawFailed(ctx: CycleContext, published: Published): Promise<void> {
  const { manifest, validUntil } = published.opened;
  const now = ctx.clock.now();
  if (now >= validUntil) return; // nothing asserts anyway
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
  await putManifest(ctx, { ...manifest, generation, index_parts: pins }, published);
}

/** The leaves with verdicts of their own after `cursor`: all there are, since none is left to a next tick. */
async function* changedLeaves(ctx: CycleContext, cursor: number): AsyncGenerator<number[]> {
  for (let since = cursor; ;) {
    const changes = await ctx.registry.verdictChangesSince(since, CHANGES_AT_ONCE);
    const last = changes.at(-1);
    if (last === undefined) return;
    yield changes.map((change) => change.leafIndex);
    since = last.verdictId;
  }
}
