import { equalBytes, toBase64Url } from '#protocol/bytes';
import type { Vkey } from '#protocol/note';
import type { VerdictEntry } from '#protocol/schemas/log-entry';
import type { LogKey } from '#protocol/state/log-state';
import { logRarely } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import type { CycleContext } from '../context.js';
import { behind, ended, FatalPublishError, forked, mismatch, unknownSigner } from '../errors.js';
import type { RegistryView } from '../registry/sql-registry.js';
import type { Published, PublishedCheckpoint } from '../store/published-files.js';
import { verdictEntryAt } from './public-state.js';
import { type TreeHead, VerifiedTree } from './tree.js';

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
