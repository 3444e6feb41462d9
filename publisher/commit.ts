import { equalBytes, toBase64, toHex, utf8 } from '#protocol/bytes';
import { formatCheckpoint, formatTlogProof } from '#protocol/checkpoint';
import type { MapHead } from '#protocol/map/paged-map';
import { signNote } from '#protocol/note';
import { entryBytes, parseEntry } from '#protocol/entries';
import { SCHEMA } from '#protocol/schemas/ids';
import { MAX_SNAPSHOT_MS, type SnapshotEntry } from '#protocol/schemas/log-entry';
import {
  CHECKPOINT_PATH,
  encodeLocation,
  LOCATION_PATH,
  LOCATION_SCHEMA,
  type SnapshotLocation,
} from '#protocol/snapshot/location';
import { formatTime, parseTime } from '#protocol/time';
import type { CycleContext, PublicState } from './context.js';
import { LeaseLostError, mismatch } from './errors.js';
import { type PublishInputs, requireSigningKey, storeNextShares } from './plan/inputs.js';
import { keysAtEnd, snapshotAt } from './plan/public-state.js';
import { logFiles, type TreeHead, VerifiedTree } from './plan/tree.js';
import { rootOf } from './store/maps.js';
import type { Published } from './store/published-files.js';

/** The state that a snapshot reports, and the end of its validity. */
export interface NewSnapshot {
  state: PublicState;
  /** In epoch milliseconds. */
  validUntil: number;
  /** Checks a chunk of the log's entries before it is published; `first` is the index of its first entry. */
  inspect: (first: number, entries: readonly Uint8Array[]) => void;
}

/**
 * Appends a snapshot entry about the state, signs a tree that contains the entry, and publishes the
 * checkpoint and the snapshot.
 */
export async function publishSnapshot(
  ctx: CycleContext,
  published: Published | null,
  inputs: PublishInputs,
  { state, validUntil, inspect }: NewSnapshot,
): Promise<number> {
  const { tree, signedSize, stored } = inputs;
  // A leaf that no verdict entry covers yet may retire this publisher's key.
  requireSigningKey(ctx, await keysAtEnd(ctx, tree, state.log), stored);
  const entry = await snapshotEntry(ctx, tree, state, validUntil);
  await storeNextShares(ctx, state.shares, signedSize);
  await ctx.leadership.require();
  const appended = (await reusable(ctx, tree, entry, signedSize)) ?? (await append(ctx, entry));
  const signed = await treeToSign(ctx, tree, appended.index, state.log.size);
  // A leaf between `tree` and the snapshot entry may retire the key too.
  requireSigningKey(ctx, await keysAtEnd(ctx, signed, state.log), stored);
  const written = { from: published?.checkpoint.size ?? 0, signedSize };
  const { size } = state.log;
  for await (const files of logFiles(signed, written, size, ctx.chunkLeaves, inspect)) {
    await ctx.writer.put(files);
    ctx.janitor.wrote(files);
    ctx.progress();
  }

  const note = await commitCheckpoint(ctx, signed.head, inputs);
  const { index } = appended;
  const tlogProof = formatTlogProof({
    index,
    path: await signed.inclusion(index),
    checkpoint: note,
  });
  await commitLocation(ctx, appended.entry, tlogProof, state, published);
  ctx.cosigner?.submit(note, signed.head.size);
  // A tree that extends this snapshot extends the trusted checkpoint too.
  ctx.memory.head = null;
  ctx.memory.appended.clear();
  ctx.janitor.supersede(ctx.maps.takeSuperseded(), ctx.monotonic.now());
  return index;
}

async function snapshotEntry(
  ctx: CycleContext,
  tree: VerifiedTree,
  { log, map, shares }: PublicState,
  validUntil: number,
): Promise<SnapshotEntry> {
  const { size } = log;
  const [time, latest] = await Promise.all([
    ctx.registry.databaseTime(),
    ctx.registry.latestEntry('snapshot', tree.head.size),
  ]);
  if (validUntil <= time) {
    throw new Error(
      time - ctx.clock.now() < ctx.snapshotTtlMs / 2
        ? 'the publish cycle took longer than the validity of its snapshot; the next cycle continues from its result'
        : `the clock of this publisher is far behind that of the database, ${formatTime(time)}: correct the wrong clock`,
    );
  }
  const before = latest && (await snapshotAt(tree, latest.leafIndex));
  const lookupFrom = Math.max(
    size - ctx.recentLookupLimit,
    // An entry that lowers `lookup_from` would have no effect.
    before?.lookupFrom ?? 0,
    log.snapshot?.lookupFrom ?? 0,
  );
  return {
    schema_version: SCHEMA.logEntry,
    type: 'snapshot',
    time: formatTime(time),
    logs: [
      {
        shard: 0,
        origin: ctx.logSigner.name,
        size,
        root: toBase64(await tree.rootAt(size)),
        expired_through: log.verdict!.expiredThrough,
        lookup_from: Math.min(lookupFrom, size),
      },
    ],
    map_root: toBase64(rootOf(map)),
    shares_root: toBase64(rootOf(shares)),
    valid_until: formatTime(Math.min(validUntil, time + MAX_SNAPSHOT_MS)),
    max_merge_delay: ctx.maxMergeDelay,
  };
}

/**
 * The last snapshot entry that this process appended, if it can be published in place of `entry`: it differs only
 * in its times, is still valid, and no signed tree extends beyond it. A failed cycle leaves such an entry, unless a
 * failover loses it.
 */
async function reusable(
  ctx: CycleContext,
  tree: VerifiedTree,
  entry: SnapshotEntry,
  signedSize: number,
) {
  const last = [...ctx.memory.appended].at(-1);
  if (last === undefined || last[0] < signedSize - 1 || last[0] >= tree.head.size) return null;
  const [present] = await tree.entries(last[0], last[0] + 1);
  if (!equalBytes(present!, last[1])) return null;
  const appended = parseEntry(last[1]) as SnapshotEntry;
  const { time, valid_until } = appended;
  const isSame = equalBytes(entryBytes({ ...entry, time, valid_until }), last[1]);
  return isSame && parseTime(valid_until) > ctx.clock.now()
    ? { index: last[0], entry: appended }
    : null;
}

async function append(ctx: CycleContext, entry: SnapshotEntry) {
  const index = await ctx.registry.appendSnapshot(entry);
  ctx.memory.appended.set(index, entryBytes(entry));
  return { index, entry };
}

/**
 * The tree whose last leaf, at `index`, is the snapshot entry that this process appended about
 * `covered` leaves.
 */
async function treeToSign(
  ctx: CycleContext,
  tree: VerifiedTree,
  index: number,
  covered: number,
): Promise<VerifiedTree> {
  const signed = await VerifiedTree.open(index + 1, ctx.primary, tree);
  ctx.memory.tree = signed;
  const isExtension =
    signed.head.size < tree.head.size
      ? await tree.extends(signed.head)
      : await signed.extends(tree.head);
  // Reads the appended entry together with the entries before it, which are needed for the files of
  // the log.
  const entries = await signed.entries(Math.max(covered, index - ctx.chunkLeaves), index + 1);
  if (!isExtension || !equalBytes(entries.at(-1)!, ctx.memory.appended.get(index)!)) {
    throw mismatch(`the log's first ${index + 1} leaves changed`);
  }
  for (const { leafIndex } of await ctx.primary.snapshotEntriesFrom(tree.head.size)) {
    if (ctx.memory.appended.has(leafIndex)) continue;
    throw new LeaseLostError('another publisher appended a snapshot entry');
  }
  return signed;
}

/**
 * COMMIT POINT of the checkpoint. A published checkpoint binds the log, so the checkpoint is stored
 * in the database before the file is written, and only if no other publisher has extended the same
 * earlier checkpoint. Returns the note.
 */
async function commitCheckpoint(
  ctx: CycleContext,
  head: TreeHead,
  { stored, file }: Pick<PublishInputs, 'stored' | 'file'>,
): Promise<string> {
  await ctx.leadership.require();
  let note = stored?.note;
  if (note === undefined || stored?.size !== head.size) {
    const { size: treeSize, root } = head;
    const text = formatCheckpoint({ origin: ctx.logSigner.name, ...head });
    const signature = await ctx.logSigner.sign(utf8(text));
    note = signNote(text, { ...ctx.logSigner, sign: () => signature });
    const previous = stored?.size ?? 0;
    if (!(await ctx.registry.insertCheckpoint({ treeSize, root, note, previous }))) {
      throw new LeaseLostError('another publisher signed a checkpoint first');
    }
    // Engines may have sent this checkpoint to clients, even if a failover loses its row.
    ctx.memory.head = head;
  }
  // Every tile and entry that the checkpoint covers is durable here. Replaces only the checkpoint
  // that this tree extends, not a later checkpoint by another publisher.
  await ctx.writer.replace(CHECKPOINT_PATH, utf8(note), file && utf8(file.note));
  return note;
}

/**
 * COMMIT POINT of the snapshot: replaces only the location that this cycle started from, because a
 * process that was suspended for longer than its lease may resume here.
 */
async function commitLocation(
  ctx: CycleContext,
  snapshot: SnapshotEntry,
  tlogProof: string,
  state: PublicState,
  published: Published | null,
): Promise<void> {
  const bytes = encodeLocation({
    schema_version: LOCATION_SCHEMA,
    snapshot,
    tlog_proof: tlogProof,
    map: pageOf(state.map),
    shares: pageOf(state.shares),
    share_change: state.shareChange,
  });
  const opened = ctx.reader.open(bytes);
  await ctx.leadership.require();
  await ctx.writer.replace(LOCATION_PATH, bytes, published?.bytes ?? null);
  ctx.onPublished?.(opened);
}

const pageOf = (head: MapHead): SnapshotLocation['map'] =>
  head && { level: head.level, digest: toHex(head.digest) };
