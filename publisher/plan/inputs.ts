import { equalBytes, toBase64, utf8, toHex } from '#protocol/bytes';
import { openCheckpointNote } from '#protocol/checkpoint';
import { isAepKeyEntry, parseEntry } from '#protocol/entries';
import { parseStrict } from '#protocol/json';
import { leafHash } from '#protocol/merkle';
import { type Vkey, formatVkey } from '#protocol/note';
import type { AepKeyEntry } from '#protocol/schemas/log-entry';
import {
  aepKeys,
  keysFile,
  keysFileSchema,
  type KeysFile,
  type RetiredLogKey,
} from '#protocol/snapshot/keys';
import { segmentPath, type Manifest } from '#protocol/snapshot/manifest';
import { rangesAt, type VoidedRange, voidedRanges } from '#protocol/snapshot/voided';
import { nativeVerify, nativeSha256 } from '#runtime/crypto/node';
import type { ShareChange } from '#sql/lifecycle/share-tokens';
import type { VerdictChange } from '#sql/log/verdicts';
import type { CycleContext } from '../context.js';
import { FatalPublishError, unknownSigner } from '../errors.js';
import type { RegistryView } from '../registry/sql-registry.js';
import type { Published } from '../store/directory.js';
import type { PublishedFile } from '../store/writer.js';
import { shareChanges } from './shares.js';
import { behind, ended, forked, type TreeHead, VerifiedTree } from './tree.js';

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

  // The verified tree must extend every known head: of the manifest, of the checkpoint file, of a
  // checkpoint signed before a crash and never published, and of TRUSTED_CHECKPOINT.
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
  const keys = await keysAt(ctx, published, stored, head.size);
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
 * tree that is about to be signed. Reads only a few rows, whatever the size of the log.
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

/** Limit of verdicts on single leaves per cycle. */
const VERDICTS_PER_CYCLE = 20_000;
/** Limit per cycle of verdicts that follow from the key list, so that a cycle stays short. */
const STATED_PER_CYCLE = 4_000;

interface VerdictChanges {
  /** Leaves with new verdicts. */
  leaves: number[];
  /** `leaves` covers every verdict up to this id. */
  cursor: number;
  /** `leaves` covers every verdict up to this id, except those that follow from the key list. */
  seen: number;
  /** Whether other verdicts wait for the next cycle. */
  isCut: boolean;
}

/**
 * The leaves with new verdicts since the published snapshot, up to the limit of one cycle. Verdicts
 * that follow from the key list may wait, because the list of the same snapshot already voids those
 * proofs. Stops the publisher if the registry lacks published verdicts.
 *
 * @param verdictId cursor to use without a published snapshot
 * @param isStated whether the key list states the result of a verdict
 */
async function verdictChanges(
  ctx: CycleContext,
  published: Published | null,
  verdictId: number,
  isStated: (change: VerdictChange) => boolean,
): Promise<VerdictChanges> {
  // The first snapshot is rendered from the effective verdicts, not from changes.
  if (published === null) return { leaves: [], cursor: verdictId, seen: verdictId, isCut: false };
  const { verdict_cursor: since, generation } = published.opened.manifest;
  if ((await ctx.registry.lastVerdictId()) < since) throw changesBehind(since);

  const { seen: last } = ctx.memory;
  const seenBefore = last?.generation === generation ? last.verdictId : since;
  const leaves: number[] = [];
  let [cursor, seen] = [since, since];
  let [stated, others] = [STATED_PER_CYCLE, VERDICTS_PER_CYCLE];
  for (let isWhole = true, isMore = true; isMore;) {
    const page = await ctx.registry.verdictChangesSince(seen, VERDICTS_PER_CYCLE);
    for (const change of page) {
      if (isStated(change)) {
        isWhole &&= stated > 0;
        if (isWhole) {
          stated -= 1;
          leaves.push(change.leafIndex);
        }
      } else if (change.verdictId > seenBefore) {
        if (others === 0) return { leaves, cursor, seen, isCut: true };
        others -= 1;
        leaves.push(change.leafIndex);
      }
      seen = change.verdictId;
      if (isWhole) cursor = seen;
    }
    isMore = page.length === VERDICTS_PER_CYCLE;
    ctx.progress();
    if (!isWhole) seen = Math.max(seen, seenBefore);
  }
  return { leaves, cursor, seen, isCut: false };
}

/** Whether a compromised key of this list is the only reason why a verdict failed. */
function isStatedBy(
  ranges: readonly VoidedRange[],
  size: number,
): (change: VerdictChange) => boolean {
  return ({ leafIndex, treeSize, failedChecks, keyId }) =>
    failedChecks.length === 1 &&
    failedChecks[0] === 'signing_key' &&
    // A verdict on a longer log may depend on a key entry that this list lacks.
    treeSize <= size &&
    rangesAt(ranges, leafIndex).some((range) => range.keyId === keyId);
}

function changesBehind(cursor: number): FatalPublishError {
  return new FatalPublishError(
    'changes_behind',
    `The published snapshot has verdict ${cursor}, and the database does not: it was restored, or failed over, to an older state, ` +
      'and proofs that failed or expired since might stay valid. Restore a database that holds every published verdict and start the publisher again. ' +
      'If those verdicts are lost for good, delete lookup/ in the snapshot directory and start the publisher again: the publisher rebuilds it from the registry, and the log beside it stays unchanged.',
  );
}

/** The key list of a snapshot and its source entries. */
export interface PublishedKeys {
  /** Bodies of the key entries, by leaf index. */
  entries: ReadonlyMap<number, Uint8Array>;
  file: PublishedFile;
  pin: Manifest['keys'];
  /** Leaf ranges that readers void. */
  ranges: readonly VoidedRange[];
}

/**
 * The key list at a tree size, with every compromise in the log. A compromise beyond that size only
 * withdraws validity, so it need not wait for the verifier. Readers void proofs by this list, so no
 * published voided range may be lost.
 *
 * @throws FatalPublishError tree_mismatch when the registry lost a range, or altered an entry
 * beyond `size`
 * @throws ProtocolError malformed_entry
 */
async function keysAt(
  ctx: CycleContext,
  published: Published | null,
  stored: StoredCheckpoint | null,
  size: number,
): Promise<PublishedKeys> {
  const rows = await ctx.registry.keyEntries();
  const entries: { leafIndex: number; entry: AepKeyEntry }[] = [];
  for (const { leafIndex, body } of rows) {
    if (leafIndex >= size) await requireLeaf(ctx, leafIndex, body);
    const entry = parseEntry(body);
    if (!isAepKeyEntry(entry)) continue;
    if (leafIndex < size || entry.change === 'compromise') entries.push({ leafIndex, entry });
  }
  const aep = aepKeys(nativeSha256, entries);
  const ranges = voidedRanges({ aep });
  const before = await publishedKeys(ctx, published);
  for (const { keyId, from } of voidedRanges(before)) {
    if (ranges.some((range) => range.keyId === keyId && range.from <= from)) continue;
    throw new FatalPublishError(
      'tree_mismatch',
      `The registry contradicts itself: the published key list voids key ${keyId} from leaf ${from} on, but its key entries lack that compromise.  ` +
        'Restore the database from a backup that holds every published leaf, and start the publisher again. ' +
        'If the entry is lost for good, run aep-key compromise for that key again, from that leaf on.',
    );
  }
  const bytes = keysFile({ aep, ...(await retiredKeys(ctx, stored, before.retired?.log)) });
  const name = toHex(nativeSha256(bytes));
  return {
    entries: new Map(rows.map(({ leafIndex, body }) => [leafIndex, body])),
    file: { path: segmentPath(name), bytes, replaces: false },
    pin: { sha256: name, bytes: bytes.length },
    ranges,
  };
}

/** No verified tree covers the leaf yet, so the row is compared with the hash that was appended. */
async function requireLeaf(ctx: CycleContext, leafIndex: number, body: Uint8Array): Promise<void> {
  const hash = await ctx.registry.leafHash(leafIndex);
  if (hash !== null && equalBytes(hash, leafHash(nativeSha256, body))) return;
  throw new FatalPublishError(
    'tree_mismatch',
    `The registry contradicts itself: the key entry at leaf ${leafIndex} differs from the appended hash. ` +
      'Restore its row, or the tile that holds its hash, from a backup, and start the publisher again.',
  );
}

async function publishedKeys(ctx: CycleContext, published: Published | null): Promise<KeysFile> {
  if (published === null) return { aep: [] };
  const { sha256: name } = published.opened.manifest.keys;
  const bytes = await ctx.directory.segment(name);
  if (toHex(nativeSha256(bytes)) !== name) {
    throw ctx.directory.damaged(`the keys file ${segmentPath(name)} is corrupt`);
  }
  return keysFileSchema.parse(parseStrict(bytes));
}

/** Omitted while empty, because older readers reject the member. */
async function retiredKeys(
  ctx: CycleContext,
  stored: StoredCheckpoint | null,
  published: readonly RetiredLogKey[] = [],
): Promise<Pick<KeysFile, 'retired'>> {
  const [[, ...logKeys], [, ...snapshotKeys]] = [ctx.trust.log, ctx.trust.snapshot];
  const log: RetiredLogKey[] = [];
  for (const key of logKeys) {
    const vkey = vkeyOf(key);
    const isLast = stored !== null && equalBytes(stored.signedBy.publicKey, key.publicKey);
    const known = isLast ? stored.size : published.find((one) => one.vkey === vkey)?.from_size;
    log.push({ vkey, from_size: known ?? (await lastSizeSignedBy(ctx, key)) });
  }
  const snapshot = snapshotKeys.map(vkeyOf);
  return log.length + snapshot.length === 0 ? {} : { retired: { log, snapshot } };
}

/** Reads the whole table for a key that signed nothing; the published keys file has the result. */
async function lastSizeSignedBy(ctx: CycleContext, key: Vkey): Promise<number> {
  // Five characters are the key id's first 30 bits: the sixth has bits of the signature too.
  const line = `\n\u2014 ${key.name} ${toBase64(key.keyHash).slice(0, 5)}`;
  const last = await ctx.registry.lastCheckpointWith(line);
  if (last === null) return 0;
  return openCheckpointNote(last.note, [key], key.name, nativeVerify).checkpoint.size;
}

function vkeyOf({ name, publicKey }: Vkey): string {
  return formatVkey(nativeSha256, name, publicKey);
}
