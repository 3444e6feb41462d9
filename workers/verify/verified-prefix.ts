import { equalBytes } from '#protocol/bytes';
import { isAepKeyEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import type { KeyedEntry } from '#protocol/keys';
import { CompactRange, HASH_BYTES, leafHash } from '#protocol/merkle';
import type { KeyStates } from '#protocol/state/log-keys';
import {
  extendTiles,
  rootFromTiles,
  tilesForAppend,
  TILE_WIDTH,
  type Tile,
  type TileReader,
} from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { pipeline, transaction } from '#sql/db/transaction';
import { readEvidence } from '#sql/log/leaf-checks';
import { compromisesIn } from '#sql/log/keys';
import { tileCache } from '#sql/log/log';
import {
  logAndPrefix,
  verifiedPrefix,
  insertVerdicts,
  insertExpiries,
  scrubUrgently,
  type Expiry,
  type VerifiedPrefix,
  type NewVerdict,
  kindsByLeaf,
  verdictOn,
} from '#sql/log/verdicts';
import {
  examine,
  extendHistory,
  type Finding,
  keysFor,
  logOrigins,
  trustedKeys,
} from './check-leaf.js';
import { LogDamagedError, type PassContext, type VerifyContext } from './context.js';

/**
 * Verifies the leaves after the verified prefix and extends the prefix over them. Returns the number of leaves; 0 when
 * the log has not grown, or another verifier extended the prefix first.
 *
 * The verifier builds the tree from the leaves that it reads and never trusts the appender. A leaf
 * that fails gets its own verdict and does not stop the prefix.
 *
 * @throws LogDamagedError when a leaf is missing or verified leaves have changed
 */
export async function extendVerifiedPrefix(context: VerifyContext, limit: number): Promise<number> {
  const startedAt = Date.now();
  // The connection that read the leaves writes their verdicts: after a failover, other leaves may have their indexes.
  const extended = await transaction(
    context.sql,
    (tx, before) => extend({ ...context, sql: tx }, before, limit),
    logAndPrefix,
  );
  if (extended === null) return 0;
  const { from, to, others, newKeys, states } = extended;
  context.traced?.(from, to, startedAt);
  const failures = others.filter(({ outcome }) => outcome === 'fail');
  context.metrics?.failed(reportAltered(context, failures));
  context.metrics?.verified('log', to - from - failures.length, failures.length);
  reportUnauthorized(context, newKeys, states);
  return to - from;
}

async function extend(
  context: PassContext,
  { prefix: start, logSize }: Awaited<ReturnType<typeof logAndPrefix>>,
  limit: number,
) {
  const { sql } = context;
  const from = start?.treeSize ?? 0;
  const to = Math.min(logSize, from + limit);
  if (to < from) {
    throw new LogDamagedError(
      `the log has ${to} leaves, but ${from} were verified: the database is older than its verdicts`,
    );
  }
  if (to === from) return null;

  const range = resume(start);
  const leaves = await readEvidence(sql, from, to);
  if (leaves.length !== to - from)
    throw new LogDamagedError(`a leaf of ${from}–${to - 1} is missing`);
  const hashes = leaves.map((leaf) => leafHash(nativeSha256, leaf.entry));
  for (const hash of hashes) range.append(hash);
  const root = range.root();
  const read = tileCache(sql);
  const tree = await readTree(read, from, to, hashes, root);
  const history = extendHistory(
    await trustedKeys(context, start),
    leaves.map(({ leafIndex, entry: bytes }) => ({ leafIndex, bytes })),
  );
  const origins = await logOrigins(context);
  const keys = await keysFor(context, leaves, history, origins);

  const found = leaves.map((leaf, offset) => {
    const leafHashInTree = tree.sound ? tree.leafHashes[offset]! : new Uint8Array();
    return examine(context, leaf.leafIndex, leaf, keys, leafHashInTree, origins);
  });
  const others = found.filter(({ outcome }) => outcome !== 'pass');
  const prefix: NewVerdict = {
    prefix: { subtrees: Buffer.concat(range.hashes), keysDigest: history.digest },
    firstIndex: from,
    lastIndex: to - 1,
    treeSize: to,
    root,
    outcome: 'pass',
    expired: [],
    checks: found.findLast(({ outcome }) => outcome === 'pass')?.checks ?? [],
  };
  const leafVerdicts = others.map(({ leafIndex, outcome, checks }) =>
    verdictOn(leafIndex, prefix, { outcome, expired: [], checks }),
  );
  const compromised = compromisesIn(keys.entries).filter(({ until }) => until >= from);
  const ends = found.flatMap((finding) => finding.ends);
  if (!(await record(context, prefix, leafVerdicts, compromised, ends))) return null;
  const newKeys = history.entries.filter(({ leafIndex }) => leafIndex >= from);
  return { from, to, others, newKeys, states: keys.states };
}

/** Logs leaves that fail for another reason than a compromised key. Returns their number. */
function reportAltered({ log, voided }: VerifyContext, failures: readonly Finding[]): number {
  let altered = 0;
  for (const { leafIndex, checks, voidedBy } of failures) {
    if (voidedBy !== null) voided.add(voidedBy, leafIndex);
    else {
      altered += 1;
      const failed = checks.filter((check) => check.result === 'fail');
      log.error({ leaf_index: leafIndex, failed }, 'verifier: leaf failed verification');
    }
  }
  return altered;
}

/** Logs activations of delegated keys whose delegation no active root signed. */
function reportUnauthorized(
  { log }: VerifyContext,
  entries: readonly KeyedEntry[],
  states: KeyStates,
): void {
  for (const { leafIndex, entry } of entries) {
    if (!isAepKeyEntry(entry) || entry.delegation === undefined) continue;
    if (states.keyOf(entry.key_id)?.isAuthorized === true) continue;
    log.error(
      { leaf_index: leafIndex, key_id: entry.key_id },
      'verifier: no active root signed a delegation; proofs by its key fail',
    );
  }
}

/** The compact range of the verified prefix, as the verifier recorded it. */
function resume(start: VerifiedPrefix | null): CompactRange {
  if (start === null) return new CompactRange(nativeSha256);
  const hashes: Uint8Array[] = [];
  for (let at = 0; at < start.subtrees.length; at += HASH_BYTES) {
    hashes.push(start.subtrees.subarray(at, at + HASH_BYTES));
  }
  const range = new CompactRange(nativeSha256, { size: start.treeSize, hashes });
  if (!equalBytes(range.root(), start.root)) {
    throw new LogDamagedError(
      'the recorded root of the verified prefix does not match its subtrees',
    );
  }
  return range;
}

/**
 * Reads the leaf hashes of the new leaves from the stored tiles, and compares the tiles above them with
 * the tree that the verifier computed.
 */
async function readTree(
  read: TileReader,
  from: number,
  to: number,
  hashes: Uint8Array[],
  root: Uint8Array,
): Promise<{ sound: boolean; leafHashes: Uint8Array[] }> {
  const leafHashes: Uint8Array[] = [];
  for (let leaf = from; leaf < to;) {
    const index = Math.floor(leaf / TILE_WIDTH);
    const tile = await read(0, index, 1);
    for (const end = Math.min(to, (index + 1) * TILE_WIDTH); leaf < end; leaf += 1) {
      const at = (leaf % TILE_WIDTH) * HASH_BYTES;
      leafHashes.push(tile.subarray(at, at + HASH_BYTES));
    }
  }
  return { sound: await matchesComputedTree(read, from, to, hashes, root), leafHashes };
}

async function matchesComputedTree(
  read: TileReader,
  from: number,
  to: number,
  hashes: Uint8Array[],
  root: Uint8Array,
): Promise<boolean> {
  const edge: Tile[] = [];
  for (const { level, index, width } of tilesForAppend(from, to - from)) {
    const tile = await read(level, index, width);
    edge.push({ level, index, hashes: tile.subarray(0, width * HASH_BYTES) });
  }
  try {
    for (const tile of extendTiles(nativeSha256, from, hashes, edge)) {
      if (tile.level === 0) continue; // compared leaf by leaf
      const stored = await read(tile.level, tile.index, tile.hashes.length / HASH_BYTES);
      if (!equalBytes(stored.subarray(0, tile.hashes.length), tile.hashes)) return false;
    }
    return equalBytes(await rootFromTiles(nativeSha256, to, read), root);
  } catch (error) {
    if (error instanceof ProtocolError) return false; // a tile is missing or too short
    throw error;
  }
}

/**
 * Writes by compare-and-swap: only one of several concurrent verifiers writes, and the others
 * start again.
 */
async function record(
  { clock, sql }: PassContext,
  prefix: NewVerdict,
  others: NewVerdict[],
  compromised: { from: number; until: number }[],
  ends: Expiry[],
): Promise<boolean> {
  const [now, start] = await pipeline(clock.lock(sql), verifiedPrefix(sql));
  if ((start?.treeSize ?? 0) !== prefix.firstIndex) return false;
  // Already expired when first verified: record the expiry here, so VALID is never published.
  const hasExpired = ({ expiresAt }: Expiry): boolean => expiresAt <= now;
  const expired = expiredAlready(prefix, ends.filter(hasExpired));
  // `now` is read under the lock, so no expiry is recorded early.
  await insertVerdicts(sql, [prefix, ...others, ...expired], now);
  for (const { from, until } of compromised) {
    await scrubUrgently(sql, Math.min(from, until), until);
  }
  await insertExpiries(
    sql,
    ends.filter((end) => !hasExpired(end)),
  );
  return true;
}

/** One verdict, with the expired artifacts, on each passing leaf that has an expiry in `ends`. */
function expiredAlready(prefix: NewVerdict, ends: readonly Expiry[]): NewVerdict[] {
  return [...kindsByLeaf(ends)].map(([leafIndex, expired]) =>
    verdictOn(leafIndex, prefix, { outcome: 'pass', expired: expired.sort(), checks: [] }),
  );
}
