import {
  equalBytes,
  toBase64Url,
  fromBase64,
  fromHex,
  fromUtf8,
  toHex,
  utf8,
} from '#protocol/bytes';
import type { Vkey } from '#protocol/note';
import type { VerdictEntry, SnapshotEntry } from '#protocol/schemas/log-entry';
import type { LogKey } from '#protocol/state/log-state';
import { logRarely } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import type { CycleContext, PublicState } from '../context.js';
import {
  behind,
  ended,
  FatalPublishError,
  forked,
  mismatch,
  unknownSigner,
  LostPageError,
} from '../errors.js';
import { type RegistryView, replicaBehind } from '../registry/sql-registry.js';
import type { Published, PublishedCheckpoint } from '../store/published-files.js';
import { verdictEntryAt } from './public-state.js';
import { type TreeHead, VerifiedTree } from './tree.js';
import { readEntry } from '#protocol/entries';
import { parseTime } from '#protocol/time';
import type { MapHead } from '#protocol/map/paged-map';
import { rootOf } from '../store/maps.js';

/** A head that the next tree must extend, and its source. */
export type TrustedHead = readonly [head: TreeHead, what: string];

export interface VerifiedCheckpoint extends TreeHead {
  note: string;
  signedBy: Vkey;
}

/** Inputs of a publish cycle, checked to extend every published head. */
export interface PublishInputs {
  /** Every leaf of the log. */
  tree: VerifiedTree;
  verdict: { index: number; entry: VerdictEntry };
  trustedHeads: readonly TrustedHead[];
  /** Size of the largest tree that was signed. */
  signedSize: number;
  stored: VerifiedCheckpoint | null;
  /** The published checkpoint, which may be newer than the checkpoint of the snapshot. */
  file: PublishedCheckpoint | null;
}

/**
 * Reads the inputs of a cycle and checks them against the published state.
 *
 * @returns null when the log has no verdict entry
 * @throws FatalPublishError when the registry does not extend the published log
 */
export async function loadPublishInputs(
  ctx: CycleContext,
  published: Published | null,
): Promise<PublishInputs | null> {
  const stored = await storedCheckpoint(ctx);
  const { name } = ctx.logSigner;
  if (stored === null && (await ctx.registry.endedOrigins()).includes(name)) throw ended(name);

  // The tree must extend every known head: of the snapshot, of the checkpoint file, of a checkpoint
  // signed before a crash and never published, and of TRUSTED_CHECKPOINT.
  const file = await ctx.reader.checkpoint();
  ctx.memory.note = file?.note ?? null;
  const trustedHeads: TrustedHead[] = [];
  if (published !== null) trustedHeads.push([published.checkpoint, 'the published snapshot']);
  if (file !== null) trustedHeads.push([file.checkpoint, 'the published checkpoint']);
  if (stored !== null) trustedHeads.push([stored, 'the last signed checkpoint']);
  const { head: configured } = ctx.memory;
  if (configured !== null)
    trustedHeads.push([
      configured,
      'the checkpoint of TRUSTED_CHECKPOINT, or the last one that this process signed',
    ]);
  if (stored !== null && trustedHeads.length === 1) {
    const text =
      'publisher: the database has a signed checkpoint, but the snapshot is empty: if the database is a copy, stop this publisher, because two publishers with one log key fork the log';
    logRarely(ctx.log, 'warn', {}, text);
  }
  const size = await ctx.registry.treeSize();
  requireCovered(size, trustedHeads);
  const tree = await VerifiedTree.open(size, ctx.registry, ctx.memory.tree);
  ctx.memory.tree = tree;
  // A failover can lose leaves that no checkpoint covers: their state would make a false map of the other leaves.
  const { progress } = ctx.memory;
  if (progress !== null && !(await tree.extends(progress.head))) ctx.memory.progress = null;
  for (const [trusted, what] of trustedHeads) {
    if (!(await tree.extends(trusted))) throw forked(trusted.size, what);
  }
  ctx.progress();
  const verdict = await lastVerdict(ctx, tree);
  const signedSize = Math.max(0, ...trustedHeads.map(([head]) => head.size));
  return verdict && { tree, verdict, trustedHeads, signedSize, stored, file };
}

/** The last verdict entry, which may not count. */
async function lastVerdict(
  { registry, memory, chunkLeaves }: CycleContext,
  tree: VerifiedTree,
): Promise<PublishInputs['verdict'] | null> {
  const row = await registry.latestEntry('verdict', tree.head.size);
  if (row === null) return null;
  // Reads the entry in one query with the entries before it, which the cycle needs next.
  const from = Math.max(memory.progress?.state.log.size ?? 0, row.leafIndex - chunkLeaves);
  if (from < row.leafIndex) await tree.entries(from, row.leafIndex + 1);
  return verdictEntryAt(tree, row.leafIndex);
}

/**
 * Checks inputs that were read from a replica: the primary must hold every published leaf and the
 * leaves of the replica. Reads only a few rows, whatever the size of the log.
 */
export async function requireInPrimary(
  primary: RegistryView,
  { tree, trustedHeads }: PublishInputs,
): Promise<void> {
  const size = await primary.treeSize();
  requireCovered(size, trustedHeads);
  const whole = await VerifiedTree.open(size, primary);
  if (!(await whole.extends(tree.head)))
    throw mismatch('the leaves of the replica differ from the leaves of the primary');
}

function requireCovered(size: number, trustedHeads: readonly TrustedHead[]): void {
  for (const [trusted, what] of trustedHeads) {
    if (trusted.size > size) throw behind(size, trusted.size, what);
  }
}

/** The last checkpoint that a key of this log signed, published or not. */
export async function storedCheckpoint(ctx: CycleContext): Promise<VerifiedCheckpoint | null> {
  const stored = await ctx.registry.latestCheckpoint();
  if (stored === null) return null;
  try {
    const { checkpoint, key } = ctx.reader.openNote(stored.note);
    const { size, root } = checkpoint;
    if (size !== stored.treeSize) throw new Error(`the note has the size ${size}`);
    return { size, root, note: stored.note, signedBy: key };
  } catch (cause) {
    const where = `The database's checkpoint of size ${stored.treeSize}`;
    const unknown = unknownSigner(stored.note, ctx.logKeys, where, cause);
    if (unknown !== null) throw unknown;
    throw new FatalPublishError(
      'checkpoint_unverifiable',
      `${where} is not signed by this publisher's log key for ${ctx.logSigner.name}. ` +
        'Give the publisher the LOG_KEY_FILE and LOG_ORIGIN of this log; if its key was changed on purpose, activate the earlier key with "admin log-key activate" and restart the publisher.',
      { cause },
    );
  }
}

/**
 * In a log that names its keys, the publisher signs only with an active key, and only after a checkpoint by a former
 * key has covered the activation: readers learn a new key from such a checkpoint.
 *
 * @param keys the keys that the log names
 * @param stored the last checkpoint of the log
 */
export function requireSigningKey(
  { logKeys: [{ publicKey }], logSigner }: Pick<CycleContext, 'logKeys' | 'logSigner'>,
  keys: ReadonlyMap<string, LogKey>,
  stored: VerifiedCheckpoint | null,
): void {
  const named = [...keys.values()].filter(({ use }) => use === 'log');
  const own = named.find((key) => key.publicKey === toBase64Url(publicKey));
  if (named.length === 0) return;
  if (own !== undefined && own.retiredFrom !== null) {
    throw new FatalPublishError(
      'log_key_retired',
      'The log retired the key in LOG_KEY_FILE: readers reject its checkpoints. Give the publisher the successor of that key.',
    );
  }
  const isFollowed =
    stored === null ||
    equalBytes(stored.signedBy.keyHash, logSigner.keyHash) ||
    (own !== undefined && own.index < stored.size) ||
    // If all other log keys are retired, no checkpoint can cover the activation: readers must pin the new key.
    named.every((key) => key === own || key.retiredFrom !== null);
  if (own !== undefined && isFollowed) return;
  throw new OperatorError(
    'No checkpoint by a former log key covers the activation of the key in LOG_KEY_FILE: activate it with "admin log-key activate", and let the publisher with the former key publish once more. If that key is lost, retire it with "admin log-key retire".',
  );
}

/** A snapshot entry of this log, and the tree that its map covers. */
interface SnapshotClaim {
  index: number;
  entry: SnapshotEntry;
  size: number;
}

/** The third byte of a canonical snapshot entry, `{"logs":…`; no other entry has this third byte. */
const L_OF_LOGS = 0x6c;

/** The snapshot entry in a leaf, if readers of evidence accept it; null for any other leaf. */
function acceptedSnapshot(
  { logSigner }: CycleContext,
  index: number,
  bytes: Uint8Array,
): SnapshotEntry | null {
  const entry = bytes[2] === L_OF_LOGS ? readEntry(bytes) : null;
  if (entry?.type !== 'snapshot') return null;
  const { shard, origin, size } = entry.logs[0]!;
  return shard === 0 && origin === logSigner.name && size <= index ? entry : null;
}

/** The snapshot entries from a size on, without those of retired logs: a log may have millions of them. */
const snapshotsFrom = async ({ registry }: CycleContext, size: number) =>
  registry.snapshotEntriesFrom(Math.max(size, await registry.endedSize()));

const isOwn = ({ memory }: CycleContext, index: number, bytes: Uint8Array): boolean => {
  const appended = memory.appended.get(index);
  return appended !== undefined && equalBytes(appended, bytes);
};

/**
 * The snapshot entries of other processes that no checkpoint covers yet.
 *
 * @throws FatalPublishError for a false entry, which readers of evidence would accept
 */
export async function unsignedSnapshots(
  ctx: CycleContext,
  tree: VerifiedTree,
  signedSize: number,
  least: number,
): Promise<SnapshotClaim[]> {
  const claims: SnapshotClaim[] = [];
  for (const { leafIndex: index } of await snapshotsFrom(ctx, signedSize)) {
    if (index >= tree.head.size) throw replicaBehind();
    const [bytes] = await tree.entries(index, index + 1);
    const entry = acceptedSnapshot(ctx, index, bytes!);
    if (entry === null || isOwn(ctx, index, bytes!)) continue;
    const { root, size } = entry.logs[0]!;
    if (size < least || !equalBytes(fromBase64(root), await tree.rootAt(size))) {
      throw falseSnapshot(
        index,
        `states a root that the log does not have at ${size} leaves, or a size below the published snapshot`,
      );
    }
    claims.push({ index, entry, size });
  }
  return claims;
}

/**
 * Stops the publisher at an unsigned snapshot entry that is missing from `claims`. The query for
 * `claims` relies on a column that the log does not cover.
 */
export function requireClaimed(
  ctx: CycleContext,
  claims: readonly SnapshotClaim[],
  signedSize: number,
) {
  const claimed = new Set(claims.map(({ index }) => index));
  return (first: number, entries: readonly Uint8Array[]): void => {
    entries.forEach((bytes, at) => {
      const index = first + at;
      if (index < signedSize || claimed.has(index)) return;
      if (acceptedSnapshot(ctx, index, bytes) === null || isOwn(ctx, index, bytes)) return;
      throw falseSnapshot(index, 'is stored in a row whose type is not `snapshot`');
    });
  };
}

/**
 * Stops the publisher if a snapshot entry states a map root or an `expired_through` that differs
 * from the log at the size in the entry.
 */
export function requireSameMap(claims: readonly SnapshotClaim[], { log, map }: PublicState): void {
  for (const { index, entry, size } of claims) {
    if (size !== log.size) continue;
    if (entry.logs[0]!.expired_through !== log.verdict?.expiredThrough) {
      throw falseSnapshot(
        index,
        'states an `expired_through` that differs from the last verdict entry',
      );
    }
    if (equalBytes(fromBase64(entry.map_root), rootOf(map))) continue;
    const own = `that of the first ${size} entries of the log (${toHex(rootOf(map))})`;
    throw falseSnapshot(index, `states a map root that differs from ${own}`);
  }
}

const falseSnapshot = (index: number, fault: string): FatalPublishError =>
  new FatalPublishError(
    'map_mismatch',
    `The snapshot entry at leaf ${index} ${fault}: ` +
      'another publisher, with other software or with access to the database, appended the entry. Publishing has stopped, and the published snapshot expires at its valid_until. ' +
      'Find out which process appended the entry before you start the publisher again.',
  );

/**
 * Before the publisher appends a snapshot entry, it stores the pages of the share map and lists the
 * map in this file. After a failed cycle the file shows which maps are stored.
 */
const NEXT_SHARES_PATH = '.next-shares';

export async function storeNextShares(
  ctx: CycleContext,
  shares: MapHead,
  signedSize: number,
): Promise<void> {
  const next = shares === null ? '' : `${shares.level} ${toHex(shares.digest)}`;
  // Failed cycles may have left snapshot entries, which the next checkpoint will also cover.
  const unsigned = await snapshotsFrom(ctx, signedSize);
  const present = await ctx.reader.read(NEXT_SHARES_PATH);
  const lines = unsigned.length === 0 ? [] : linesOf(present);
  const bytes = utf8([...new Set([...lines, next])].join('\n'));
  if (present !== null && equalBytes(present, bytes)) return;
  await ctx.writer.replace(NEXT_SHARES_PATH, bytes, present);
}

const linesOf = (bytes: Uint8Array | null): string[] =>
  fromUtf8(bytes ?? new Uint8Array()).split('\n');

/**
 * Throws while an unexpired snapshot entry states a share map whose pages are not stored here: the log
 * cannot rebuild them, and they may exist only on another host. An expired entry supports no answer.
 */
export async function requireStoredShares(
  ctx: CycleContext,
  claims: readonly SnapshotClaim[],
  state: PublicState,
  published: Published | null,
): Promise<void> {
  const open = claims.filter(({ entry }) => parseTime(entry.valid_until) > ctx.clock.now());
  if (open.length === 0) return;
  const stored = [rootOf(null), rootOf(state.shares), ...(await nextShares(ctx))];
  if (published !== null) stored.push(fromBase64(published.snapshot.shares_root));
  for (const { index, entry } of open) {
    const root = fromBase64(entry.shares_root);
    if (stored.some((known) => equalBytes(known, root))) continue;
    throw new Error(
      `the published files lack the share map of the snapshot entry at leaf ${index}, which another publisher appended: restore its pages, or wait until the entry expires at ${entry.valid_until}; until then no checkpoint is signed`,
    );
  }
}

async function nextShares(ctx: CycleContext): Promise<Uint8Array[]> {
  const roots: Uint8Array[] = [];
  for (const line of linesOf(await ctx.reader.read(NEXT_SHARES_PATH))) {
    const [, level, digest] = /^(\d{1,2}) ([0-9a-f]{64})$/.exec(line) ?? [];
    if (level === undefined || digest === undefined) continue;
    try {
      roots.push(await ctx.maps.rootIn({ level: Number(level), digest: fromHex(digest) }));
    } catch (error) {
      if (!(error instanceof LostPageError)) throw error;
    }
  }
  return roots;
}
