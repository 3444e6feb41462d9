import { toHex, utf8 } from '#protocol/bytes';
import { formatCheckpoint, formatTlogProof } from '#protocol/checkpoint';
import type { MapHead } from '#protocol/map/paged-map';
import { signNote } from '#protocol/note';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import {
  CHECKPOINT_PATH,
  encodeLocation,
  LOCATION_PATH,
  LOCATION_SCHEMA,
  type SnapshotLocation,
} from '#protocol/snapshot/location';
import type { CycleContext, PublicState } from './context.js';
import { LeaseLostError } from './errors.js';
import type { PublishInputs } from './plan/inputs.js';
import type { TreeHead, VerifiedTree } from './plan/tree.js';
import type { Published } from './store/published-files.js';

/**
 * COMMIT POINT of the checkpoint. A published checkpoint binds the log, so the checkpoint is stored
 * in the database before the file is written, and only if no other publisher has extended the same
 * earlier checkpoint. Returns the note.
 */
export async function commitCheckpoint(
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
export async function commitLocation(
  ctx: CycleContext,
  tree: VerifiedTree,
  appended: { index: number; entry: SnapshotEntry },
  note: string,
  state: PublicState,
  published: Published | null,
): Promise<void> {
  const { index, entry } = appended;
  const location: SnapshotLocation = {
    schema_version: LOCATION_SCHEMA,
    snapshot: entry,
    tlog_proof: formatTlogProof({ index, path: await tree.inclusion(index), checkpoint: note }),
    map: pageOf(state.map),
    shares: pageOf(state.shares),
    share_change: state.shareChange,
  };
  const bytes = encodeLocation(location);
  const opened = ctx.reader.open(bytes);
  await ctx.leadership.require();
  await ctx.writer.replace(LOCATION_PATH, bytes, published?.bytes ?? null);
  ctx.onPublished?.(opened);
}

const pageOf = (head: MapHead): SnapshotLocation['map'] =>
  head && { level: head.level, digest: toHex(head.digest) };
