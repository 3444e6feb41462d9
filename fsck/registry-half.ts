import { equalBytes } from '#protocol/bytes';
import { rootFromTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { missingCheckpoints } from '#sql/fsck/log';
import { countProofs, keyEntries } from '#sql/log/keys';
import { tileCache, endedOrigins } from '#sql/log/log';
import type { Findings } from './findings.js';
import { checkAdmissions, checkBatches, checkStrays } from './registry/admissions.js';
import { type RegistryContext, KeyHistory } from './registry/context.js';
import { checkGrants, checkRevocations } from './registry/lifecycle.js';
import { checkHead, type Anchor } from './registry/log-tree.js';
import { RegistryWalk, type WalkState } from './registry/walk.js';
import type { FsckOptions } from './state.js';
import { GrowingTree } from './tree.js';

/**
 * Begins the check of the database, or resumes `before` if the log still extends the tree of that state.
 *
 * @param anchors roots from the public snapshot
 */
export async function openRegistry(
  registry: NonNullable<FsckOptions['registry']>,
  findings: Findings,
  anchors: readonly Anchor[],
  before: WalkState | null,
): Promise<RegistryWalk> {
  const size = await checkHead(registry.sql, findings.add);
  const { logVkeys, sql } = registry;
  const origins = [logVkeys[0].name, ...(await endedOrigins(sql))] as const;
  const keys = KeyHistory.read(await keyEntries(sql), size, origins);
  await countProofs(sql, keys.states, keys.keyIds);
  for (const anchor of anchors) {
    if (anchor.size <= size) continue;
    const expected = `at most ${size} leaves, the size of the log in the database, found ${anchor.size}`;
    findings.add('checkpoint_beyond_log', anchor.where, expected);
  }
  const covered = anchors.map((anchor) => anchor.size).filter((one) => one <= size);
  for (const missing of await missingCheckpoints(sql, origins[0], covered)) {
    findings.add('checkpoint_missing', `svc.checkpoint tree_size=${missing}`, 'a row of this size');
  }
  const ctx = { ...registry, findings, keys, origins, size };
  const isSame = before !== null && (await hasTree(ctx, before));
  return new RegistryWalk(ctx, anchors, isSame ? before : undefined);
}

async function hasTree(
  { sql, size }: RegistryContext,
  { log: { tree: state, isBroken } }: WalkState,
): Promise<boolean> {
  if (state.size === 0 || state.size > size) return false;
  if (isBroken) return true;
  try {
    const root = await rootFromTiles(nativeSha256, state.size, tileCache(sql));
    return equalBytes(root, new GrowingTree(state).root());
  } catch {
    return false; // A tile is missing: the walk reports it.
  }
}

/** Findings that show that the log has lost leaves at its end. */
const CUT = ['checkpoint_beyond_log', 'verdict_beyond_log', 'tile_beyond_head'] as const;

/**
 * Checks the tables that the walk of the log does not read in log order: admissions, shares, batches, decision inputs.
 */
export async function finishRegistry(
  walk: RegistryWalk,
  { waitMs, progress }: Pick<FsckOptions, 'progress' | 'waitMs'>,
): Promise<void> {
  const { ctx } = walk;
  await walk.finish();
  let done = 0;
  const { counts } = ctx.findings.state;
  const isCut = CUT.some((code) => (counts[code] ?? 0) > 0);
  await checkAdmissions(ctx, isCut || walk.state.hasDamagedLeaf, waitMs, (rows) => {
    done += rows;
    progress('admissions', done, Math.max(done, ctx.size));
  });
  await checkRevocations(ctx);
  await checkGrants(ctx);
  await checkBatches(ctx);
  await checkStrays(ctx);
}
