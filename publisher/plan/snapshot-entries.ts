import { equalBytes, fromBase64, fromHex, fromUtf8, toHex, utf8 } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import { parseTime } from '#protocol/time';
import type { MapHead } from '#protocol/map/paged-map';
import type { CycleContext, PublicState } from '../context.js';
import { FatalPublishError, LostPageError } from '../errors.js';
import { replicaBehind } from '../registry/sql-registry.js';
import type { Published } from '../store/published-files.js';
import { rootOf } from '../store/maps.js';
import type { VerifiedTree } from './tree.js';

/** A snapshot entry of this log, and the tree that its map covers. */
export interface SnapshotClaim {
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
