import { ProtocolError } from '#protocol/errors';
import type { VerdictInHistory } from '#protocol/history';
import { HASH_BYTES, verifyInclusion } from '#protocol/merkle';
import { inclusionFromTiles, TILE_WIDTH, tileWidth, type TileReader } from '#protocol/tiles';
import type { Check } from '#protocol/verify';
import { nativeSha256 } from '#runtime/crypto/node';
import { type Db, pipeline, transaction } from '#sql/db/transaction';
import { readEvidence } from '#sql/log/leaf-checks';
import { tileCache } from '#sql/log/log';
import {
  verifiedPrefix,
  insertExpiries,
  insertVerdicts,
  advanceScrubCursor,
  scrubPosition,
  verdictsForLeaves,
  type Expiry,
  type NewVerdict,
  type ScrubPosition,
  type VerifiedPrefix,
  verdictOn,
} from '#sql/log/verdicts';
import { examine, type Finding, keysFor, logOrigins, trustedKeys } from './check-leaf.js';
import type { PassContext, VerifyContext } from './context.js';

/**
 * Verifies `count` leaves of the verified prefix again, against the root that the verifier computed: urgent leaves,
 * newest first, or otherwise the next leaves of the pass. A leaf gets a new verdict when its result, its failed checks
 * or its expired artifacts changed.
 *
 * Returns the number of new verdicts, whether urgent leaves remain, and the size of the prefix.
 */
export async function scrub(context: VerifyContext, count: number) {
  const { log, metrics, voided } = context;
  // On one connection, like an extension of the prefix.
  const scrubbed = await transaction(context.sql, (tx) =>
    scrubOnce({ ...context, sql: tx }, count),
  );
  if (scrubbed === null) return { changed: 0, urgent: false, size: 0 };
  const { changed, found, size, urgent } = scrubbed;
  const failed = [...found.values()].filter(({ outcome }) => outcome === 'fail').length;
  metrics?.verified('scrub', found.size - failed, failed);
  let altered = 0;
  for (const { firstIndex, outcome, checks } of changed) {
    const fields = { leaf_index: firstIndex, checks };
    const { voidedBy } = found.get(firstIndex)!;
    if (voidedBy !== null) voided.add(voidedBy, firstIndex);
    else if (outcome === 'fail') {
      altered += 1;
      log.error(fields, 'scrubber: leaf failed verification');
    } else if (outcome === 'erased') log.info(fields, 'scrubber: the payload of a leaf was erased');
    else log.warn(fields, 'scrubber: a leaf passes again, or artifacts have expired');
  }
  metrics?.failed(altered);
  if (!urgent) voided.report(log);
  return { changed: changed.length, urgent, size };
}

async function scrubOnce(context: PassContext, count: number) {
  const { clock, sql } = context;
  // Reads the urgent range before the prefix, which then covers this range even if another verifier extends it.
  const position = await requirePosition(sql);
  const prefix = await verifiedPrefix(sql);
  if (prefix === null) return null;
  const size = prefix.treeSize;
  const { from, to, next } = nextLeaves(position, count, size);
  const found = await checkAgain(context, prefix, from, to);

  const [now, positionNow, prefixNow, verdictsNow] = await pipeline(
    clock.lock(sql),
    requirePosition(sql),
    verifiedPrefix(sql),
    verdictsForLeaves(sql, [...found.keys()]),
  );
  const changed: NewVerdict[] = [];
  // If leaves became urgent during the checks, for example by a key compromise, discards the results of the checks.
  if (positionNow.epoch !== position.epoch)
    return { changed, found, size, urgent: positionNow.urgentUntil > 0 };
  const newExpiries: Expiry[] = [];
  for (const [index, finding] of found) {
    const before = verdictsNow.get(index);
    // Skips a leaf on which another verifier wrote a verdict meanwhile, perhaps from newer data.
    if (before?.verdictId !== finding.verdictId) continue;
    const verdict = changedVerdict(finding, before, now);
    if (verdict === null) continue;
    changed.push(verdictOn(index, prefixNow ?? prefix, verdict));
    // Records the expiries of a leaf that failed before, because none are recorded yet.
    newExpiries.push(...finding.ends.filter(({ expiresAt }) => expiresAt > now));
  }
  await insertVerdicts(sql, changed, now);
  await insertExpiries(sql, newExpiries);
  await advanceScrubCursor(sql, next);
  return { changed, found, size, urgent: next.urgentUntil > 0 };
}

interface NewFinding extends Finding {
  /** The id of the verdict before the check. */
  verdictId: number | undefined;
}

/** Checks the leaves of [from, to). */
async function checkAgain(
  context: PassContext,
  prefix: VerifiedPrefix,
  from: number,
  to: number,
): Promise<Map<number, NewFinding>> {
  const { sql } = context;
  const indexes = Array.from({ length: to - from }, (_, offset) => from + offset);
  const verdicts = await verdictsForLeaves(sql, indexes);
  const leaves = new Map((await readEvidence(sql, from, to)).map((leaf) => [leaf.leafIndex, leaf]));
  const origins = await logOrigins(context);
  const history = await trustedKeys(context, prefix);
  const keys = await keysFor(context, [...leaves.values()], history, origins);
  const inTree = leafHashesOf({ size: prefix.treeSize, root: prefix.root }, tileCache(sql));
  const found = new Map<number, NewFinding>();
  for (const index of indexes) {
    const leaf = leaves.get(index);
    const leafHashInTree = leaf === undefined ? NO_HASH : await inTree(index);
    const finding = examine(context, index, leaf, keys, leafHashInTree, origins);
    found.set(index, { ...finding, verdictId: verdicts.get(index)?.verdictId });
  }
  return found;
}

/** The verdict that a finding causes at `now`; null when it repeats the previous verdict. */
function changedVerdict(
  { outcome, checks, ends }: Finding,
  before: VerdictInHistory | undefined,
  now: number,
): Pick<NewVerdict, 'outcome' | 'expired' | 'checks'> | null {
  const newlyExpired = ends.filter(({ expiresAt }) => expiresAt <= now).map(({ kind }) => kind);
  // A recorded expiry is never withdrawn.
  const expired = [...new Set([...(before?.expired ?? []), ...newlyExpired])].sort();
  const isSame = before?.outcome === outcome && before.expired.length === expired.length;
  // A leaf that failed before, because its key is compromised, gets a new verdict if it is altered too.
  const isSameCause =
    outcome !== 'fail' || failedChecks(checks).join() === before?.failedChecks.join();
  return isSame && isSameCause ? null : { outcome, expired, checks };
}

async function requirePosition(sql: Db): Promise<ScrubPosition> {
  const position = await scrubPosition(sql);
  if (position === null) throw new Error('svc.scrub has no row: restore it');
  return position;
}

/** The range [from, to) to verify now, and the next position of the scrubber. */
function nextLeaves({ nextIndex, urgentUntil }: ScrubPosition, count: number, size: number) {
  if (urgentUntil > 0) {
    const from = Math.max(nextIndex, urgentUntil - count);
    const next = { nextIndex, urgentUntil: from > nextIndex ? from : 0 };
    return { from, to: Math.max(from, urgentUntil), next };
  }
  const from = nextIndex >= size ? 0 : nextIndex;
  const to = Math.min(from + count, size);
  return { from, to, next: { nextIndex: to, urgentUntil: 0 } };
}

const failedChecks = (checks: readonly Check[]): string[] =>
  checks.flatMap(({ name, result }) => (result === 'fail' ? [name] : []));

const NO_HASH = new Uint8Array();

/**
 * Reads leaf hashes, and checks their tiles. One inclusion proof per tile suffices: the path of its
 * first leaf covers all its other hashes. A damaged tile fails all its leaves.
 */
function leafHashesOf(
  tree: { size: number; root: Uint8Array },
  read: TileReader,
): (index: number) => Promise<Uint8Array> {
  const tiles = new Map<number, Uint8Array | null>();
  const soundTile = async (tileIndex: number): Promise<Uint8Array | null> => {
    const first = tileIndex * TILE_WIDTH;
    const width = tileWidth(0, tileIndex, tree.size);
    try {
      const path = await inclusionFromTiles(nativeSha256, first, tree.size, read);
      const tile = await read(0, tileIndex, width);
      const leafHash = tile.subarray(0, HASH_BYTES);
      const sound = verifyInclusion(nativeSha256, { ...tree, index: first, leafHash, path });
      return sound ? tile : null;
    } catch (error) {
      if (error instanceof ProtocolError) return null; // a tile is missing or too short
      throw error;
    }
  };
  return async (index) => {
    const tileIndex = Math.floor(index / TILE_WIDTH);
    let tile = tiles.get(tileIndex);
    if (tile === undefined) {
      tile = await soundTile(tileIndex);
      tiles.set(tileIndex, tile);
    }
    const at = (index % TILE_WIDTH) * HASH_BYTES;
    return tile === null ? NO_HASH : tile.subarray(at, at + HASH_BYTES);
  };
}
