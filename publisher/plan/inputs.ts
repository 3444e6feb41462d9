import { equalBytes, utf8 } from '#protocol/bytes';
import { openCheckpointNote } from '#protocol/checkpoint';
import type { Vkey } from '#protocol/note';
import { nativeVerify } from '#runtime/crypto/node';
import type { CycleContext } from '../context.js';
import { FatalPublishError, unknownSigner } from '../errors.js';
import type { ShareChange } from '#sql/lifecycle/share-tokens';
import type { RegistryView } from '../registry/sql-registry.js';
import type { Published } from '../store/directory.js';
import { keysAt, type PublishedKeys } from './keys.js';
import { shareChanges } from './shares.js';
import { behind, ended, forked, type TreeHead, VerifiedTree } from './tree.js';
import { isStatedBy, verdictChanges, type VerdictChanges } from './verdict-changes.js';

/** A head that the next tree must extend, and its source. */
export type TrustedHead = readonly [head: TreeHead, what: string];

export interface StoredCheckpoint extends TreeHead {
  note: string;
  signedBy: Vkey;
}

/** Inputs of a publish cycle, checked to extend every published head. */
export interface PublishInputs {
  head: TreeHead;
  trustedHeads: readonly TrustedHead[];
  /** Null when every trusted head is this tree, so there are no new leaves. */
  tree: VerifiedTree | null;
  stored: StoredCheckpoint | null;
  /** The note in the published checkpoint file. */
  publishedNote: string | null;
  keys: PublishedKeys;
  changes: VerdictChanges;
  shareChanges: ShareChange[];
}

/**
 * Reads the inputs of a cycle and checks them against the published state.
 *
 * @returns null when the log has no verified prefix
 * @throws FatalPublishError when the registry does not extend the published log
 */
export async function loadPublishInputs(
  ctx: CycleContext,
  published: Published | null,
): Promise<PublishInputs | null> {
  const prefix = await ctx.registry.verifiedPrefix();
  const stored = await storedCheckpoint(ctx);
  if (stored === null && (await ctx.registry.hasEnded(ctx.logSigner.name))) {
    throw ended(ctx.logSigner.name);
  }

  // The verified tree must extend every published head: in the manifest, in the checkpoint file,
  // signed before a crash and never written, or configured in TRUSTED_CHECKPOINT.
  const file = await ctx.directory.checkpoint();
  const trustedHeads: TrustedHead[] = [];
  if (published !== null)
    trustedHeads.push([published.opened.checkpoint, 'the published snapshot']);
  if (file !== null) trustedHeads.push([file.checkpoint, 'the published checkpoint']);
  if (stored !== null) trustedHeads.push([stored, 'the last signed checkpoint']);
  const { head: configured } = ctx.memory;
  if (configured !== null) trustedHeads.push([configured, 'the checkpoint of TRUSTED_CHECKPOINT']);
  requireCovered(prefix?.treeSize ?? 0, trustedHeads);
  if (prefix === null) return null;
  const head: TreeHead = { size: prefix.treeSize, root: prefix.root };
  ctx.progress();
  const keys = await keysAt(ctx, published, head.size);
  ctx.progress();
  const tree = await openExtendingTree(ctx, head, trustedHeads);
  ctx.progress();
  return {
    head,
    trustedHeads,
    tree,
    stored,
    publishedNote: file?.note ?? null,
    keys,
    // Read before the verdicts themselves: a verdict written between the two reads is published twice, never missed.
    changes: await verdictChanges(
      ctx,
      published,
      prefix.verdictId,
      isStatedBy(keys.ranges, head.size),
    ),
    shareChanges: await shareChanges(ctx, published?.opened.manifest.index_parts ?? []),
  };
}

/**
 * Checks inputs that were read from a replica: the primary must hold every published leaf and the
 * tree that is about to be signed. Reads a few rows at any size of the log.
 */
export async function requireInPrimary(
  ctx: CycleContext,
  primary: RegistryView,
  { head, trustedHeads, tree }: PublishInputs,
): Promise<void> {
  const prefix = await primary.verifiedPrefix();
  requireCovered(prefix?.treeSize ?? 0, trustedHeads);
  if (tree === null) return;
  await VerifiedTree.open(head, (level, index) => primary.tile(level, index));
}

function requireCovered(size: number, trustedHeads: readonly TrustedHead[]): void {
  for (const [trusted, what] of trustedHeads) {
    if (trusted.size > size) throw behind(size, trusted.size, what);
  }
}

/**
 * Opens the verified tree and checks that it extends every trusted head; null when every trusted head
 * is this tree.
 */
async function openExtendingTree(
  ctx: CycleContext,
  head: TreeHead,
  trustedHeads: readonly TrustedHead[],
): Promise<VerifiedTree | null> {
  let grown = trustedHeads.length === 0;
  for (const [trusted, what] of trustedHeads) {
    if (trusted.size < head.size) grown = true;
    else if (!equalBytes(trusted.root, head.root)) throw forked(trusted.size, what);
  }
  if (!grown && trustedHeads.some(([, what]) => what === 'the published snapshot')) return null;
  const tree = await VerifiedTree.open(head, (level, index) => ctx.registry.tile(level, index));
  for (const [trusted, what] of trustedHeads) await tree.requireExtends(trusted, what);
  return tree;
}

/** The last checkpoint that a key of this log signed, published or not. */
export async function storedCheckpoint(ctx: CycleContext): Promise<StoredCheckpoint | null> {
  const stored = await ctx.registry.latestCheckpoint();
  if (stored === null) return null;
  const { log } = ctx.trust;
  try {
    const { checkpoint, key } = openCheckpointNote(stored.note, log, log[0].name, nativeVerify);
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
