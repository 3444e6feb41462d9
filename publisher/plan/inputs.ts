import { equalBytes, utf8 } from '#protocol/bytes';
import { openCheckpointNote } from '#protocol/checkpoint';
import type { Vkey } from '#protocol/note';
import type { Manifest } from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import type { CycleContext } from '../context.js';
import { FatalPublishError } from '../errors.js';
import type { RegistryView, ShareChange } from '../registry/registry-view.js';
import type { Published } from '../store/directory.js';
import { keysAt, type PublishedKeys } from './keys.js';
import { shareChanges } from './shares.js';
import { behind, ended, forked, type TreeHead, VerifiedTree } from './tree.js';
import { unknownSigner } from './unknown-signer.js';
import { isStatedBy, verdictChanges, type VerdictChanges } from './verdict-changes.js';

/** A head that somebody may hold us to, and what it was found in. */
export type TrustedHead = readonly [head: TreeHead, what: string];

export interface StoredCheckpoint extends TreeHead {
  note: string;
  signedBy: Vkey;
}

/** What a tick goes on from: shown to extend everything that was ever published. */
export interface PublishInputs {
  head: TreeHead;
  anchors: readonly TrustedHead[];
  /** Null when there is nothing to add, because every anchor is this very tree. */
  tree: VerifiedTree | null;
  stored: StoredCheckpoint | null;
  /** The note in the published checkpoint file. */
  publishedNote: string | null;
  keys: PublishedKeys;
  changes: VerdictChanges;
  grants: ShareChange[];
}

/**
 * Reads what there is to publish and holds it against what is published.
 *
 * @returns null when nothing is verified yet
 * @throws FatalPublishError when the registry does not extend what is published
 */
export async function loadPublishInputs(
  ctx: CycleContext,
  published: Published | null,
): Promise<PublishInputs | null> {
  const frontier = await ctx.registry.verifiedPrefix();
  const stored = await storedCheckpoint(ctx);
  if (stored === null && (await ctx.registry.hasEnded(ctx.logSigner.name))) {
    throw ended(ctx.logSigner.name);
  }

  // What may be published is what the verifier found and what extends everything ever published:
  // in the manifest, in the checkpoint file, signed by a publisher that died before writing it, or
  // kept by somebody else.
  const file = await ctx.directory.checkpoint();
  const anchors: TrustedHead[] = [];
  if (published !== null) anchors.push([published.opened.checkpoint, 'the published snapshot']);
  if (file !== null) anchors.push([file.checkpoint, 'the published checkpoint']);
  if (stored !== null) anchors.push([stored, 'the last signed checkpoint']);
  const { head: kept } = ctx.kept;
  if (kept !== null) anchors.push([kept, 'the checkpoint of TRUSTED_CHECKPOINT']);
  requireCovered(frontier?.treeSize ?? 0, anchors);
  if (frontier === null) return null;
  const head: TreeHead = { size: frontier.treeSize, root: frontier.root };
  const keys = await keysAt(ctx, published, head.size);
  return {
    head,
    anchors,
    tree: await extending(ctx, head, anchors),
    stored,
    publishedNote: file?.note ?? null,
    keys,
    // Read before the verdicts themselves: what is decided in between is taken up again, not missed.
    changes: await verdictChanges(
      ctx,
      published,
      frontier.verdictId,
      isStatedBy(keys.ranges, head.size),
    ),
    grants: await shareChanges(ctx, published?.opened.manifest.index_parts ?? []),
  };
}

/**
 * For what was found in a replica: the primary has everything that was published, and the very tree
 * that is about to be signed. A few rows, whatever the size of the log.
 */
export async function requireInPrimary(
  ctx: CycleContext,
  primary: RegistryView,
  { head, anchors, tree }: PublishInputs,
): Promise<void> {
  const frontier = await primary.verifiedPrefix();
  requireCovered(frontier?.treeSize ?? 0, anchors);
  if (tree === null) return;
  await VerifiedTree.open(ctx.sha256, head, (level, index) => primary.tile(level, index));
}

function requireCovered(size: number, anchors: readonly TrustedHead[]): void {
  for (const [anchor, what] of anchors) {
    if (anchor.size > size) throw behind(size, anchor.size, what);
  }
}

/**
 * The verified tree, shown to extend every anchor; null when there is nothing to add because all
 * of them are this very tree.
 */
async function extending(
  ctx: CycleContext,
  head: TreeHead,
  anchors: readonly TrustedHead[],
): Promise<VerifiedTree | null> {
  let grown = anchors.length === 0;
  for (const [anchor, what] of anchors) {
    if (anchor.size < head.size) grown = true;
    else if (!equalBytes(anchor.root, head.root)) throw forked(anchor.size, what);
  }
  if (!grown && anchors.some(([, what]) => what === 'the published snapshot')) return null;
  const tree = await VerifiedTree.open(ctx.sha256, head, (level, index) =>
    ctx.registry.tile(level, index),
  );
  for (const [anchor, what] of anchors) await tree.requireExtends(anchor, what);
  return tree;
}

/** The last checkpoint that this log's keys signed, whether or not it came to be published. */
export async function storedCheckpoint(ctx: CycleContext): Promise<StoredCheckpoint | null> {
  const stored = await ctx.registry.latestCheckpoint();
  if (stored === null) return null;
  const { log } = ctx.trust;
  try {
    const { checkpoint, key } = openCheckpointNote(stored.note, log, log[0].name, ctx.verify);
    const { size, root } = checkpoint;
    if (size !== stored.treeSize) throw new Error(`the note is of size ${size}`);
    return { size, root, note: stored.note, signedBy: key };
  } catch (cause) {
    const where = `The database's checkpoint of size ${stored.treeSize}`;
    const unknown = unknownSigner(utf8(stored.note), log, 'LOG', where, cause);
    if (unknown !== null) throw unknown;
    throw new FatalPublishError(
      'checkpoint_unverifiable',
      `${where} is not signed by this publisher's log key for ${ctx.logSigner.name}. ` +
        'Give the publisher the LOG_KEY_FILE and LOG_ORIGIN of this log; if its key was changed on purpose, name the earlier one in LOG_RETIRED_VKEYS.',
      { cause },
    );
  }
}

/**
 * How long a manifest asserts. One that leaves changes to the next tick asserts no longer than the
 * one before it: what the verifier vouches for is not all in it. Of one whose end is there already,
 * or comes while it is made, the beginning is moved before that: it is published as over, so that
 * the next tick goes on from it.
 *
 * @param before the manifest that is not to be outlasted, if any
 */
export function validity(
  before: Published | null,
  maxValidUntil: number,
  began: number,
  now: number,
): Pick<Manifest, 'issued_at' | 'valid_until'> {
  const end = Math.min(maxValidUntil, before?.opened.validUntil ?? Infinity);
  const issued = [now, began].find((at) => at < end) ?? before?.opened.issuedAt ?? began;
  return { issued_at: formatTime(issued), valid_until: formatTime(end) };
}
