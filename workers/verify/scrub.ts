import { ProtocolError } from '#protocol/errors';
import { inclusionFromTiles, type TileReader } from '#protocol/tiles';
import { allPassed, type Check } from '#protocol/verify';
import { nativeSha256 } from '#runtime/crypto';
import { transaction } from '#sql/transaction';
import { readEvidence } from '#sql/evidence';
import {
  frontier,
  insertVerdicts,
  moveScrub,
  scrubPosition,
  verdictsForRange,
  type NewVerdict,
} from '#sql/verdicts';
import { checkLeaf } from './check-leaf.js';
import type { VerifyContext } from './context.js';
import { VERDICT_LOCK } from './frontier.js';
import { trustedKeys } from './keys.js';
import { tileCache } from './tile-cache.js';

/**
 * Verifies the next `count` leaves of the verified prefix again, round and round, each up to the
 * root that the verifier itself computed. A leaf whose result is not what its verdict says gets a
 * new verdict: what no longer verifies stops asserting, what was mended asserts again.
 *
 * Returns how many verdicts changed.
 */
export async function scrub(context: VerifyContext, count: number): Promise<number> {
  const { sql, log } = context;
  const prefix = await frontier(sql);
  if (prefix === null) return 0;
  const position = await scrubPosition(sql);
  const from = position >= prefix.treeSize ? 0 : position;
  const to = Math.min(from + count, prefix.treeSize);

  const leaves = new Map((await readEvidence(sql, from, to)).map((leaf) => [leaf.leafIndex, leaf]));
  const read = tileCache(sql);
  const keys = await trustedKeys(context, { size: prefix.treeSize, root: prefix.root }, read);

  const found = new Map<number, Check[]>();
  for (let index = from; index < to; index += 1) {
    const leaf = leaves.get(index);
    if (leaf === undefined) {
      found.set(index, [{ name: 'log_entry', result: 'fail', detail: 'the leaf is missing' }]);
      continue;
    }
    const path = await pathTo(index, prefix.treeSize, read);
    found.set(
      index,
      checkLeaf(leaf, keys, prefix.treeSize, { size: prefix.treeSize, path, root: prefix.root }),
    );
  }

  const changed = await transaction(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${VERDICT_LOCK})`;
    const said = await verdictsForRange(tx, from, to);
    const verdicts: NewVerdict[] = [];
    for (const [index, checks] of found) {
      const outcome = allPassed(checks) ? 'pass' : 'fail';
      const before = said.get(index);
      if (before?.outcome === outcome) continue;
      verdicts.push({
        subtrees: null,
        firstIndex: index,
        lastIndex: index,
        treeSize: prefix.treeSize,
        root: prefix.root,
        outcome,
        expired: before?.expired ?? [],
        checks,
      });
    }
    await insertVerdicts(tx, verdicts);
    await moveScrub(tx, to);
    return verdicts;
  });
  for (const verdict of changed) {
    const fields = { leaf_index: verdict.firstIndex, checks: verdict.checks };
    if (verdict.outcome === 'fail') log.error(fields, 'ALARM: a leaf no longer verifies');
    else log.warn(fields, 'a leaf verifies again');
  }
  return changed.length;
}

/** The inclusion path that the tiles give; none, which proves nothing, when one is damaged. */
async function pathTo(index: number, size: number, read: TileReader): Promise<Uint8Array[]> {
  try {
    return await inclusionFromTiles(nativeSha256, index, size, read);
  } catch (error) {
    if (error instanceof ProtocolError) return [];
    throw error;
  }
}
