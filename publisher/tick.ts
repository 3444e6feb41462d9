import { equalBytes, toBase64, toHex, utf8 } from '#protocol/bytes';
import { formatCheckpoint, openCheckpointNote } from '#protocol/checkpoint';
import { parseEntry } from '#protocol/entries';
import { formatVkey, signNote, type Vkey } from '#protocol/note';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys, keysFile, type KeysFile } from '#protocol/snapshot/keys';
import {
  CHECKPOINT_PATH,
  PACKAGE_PARTS,
  segmentPath,
  SHARE_PARTS,
  SNAPSHOT_SCHEMA,
  type Manifest,
} from '#protocol/snapshot/manifest';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { formatTime } from '#protocol/time';
import type { TickContext } from './context.js';
import type { Published } from './directory.js';
import { changedGrants, grantChanges, GRANTS_PER_TICK } from './grants.js';
import { IndexBuilder } from './index-builder.js';
import { judgedAnew } from './judged-anew.js';
import { newLeaves } from './new-leaves.js';
import { packagesAnew, PublishedMembers } from './packages.js';
import type { PublishedFile } from './publish.js';
import { nextGeneration, putManifest } from './put-manifest.js';
import { LeadershipLost, PublisherStopped } from './stopped.js';
import { behind, ended, forked, VerifiedTree, type TreeHead } from './tree.js';
import { validity } from './validity.js';
import { verdictChanges, VERDICTS_PER_TICK } from './verdict-changes.js';
import { withdrawFailed } from './withdraw.js';

export type TickReport =
  /** Another publisher leads. */
  | { outcome: 'standby' }
  /** Nothing is verified yet, so there is nothing to speak of. */
  | { outcome: 'waiting' }
  /**
   * The verifier has not looked for what is over for as long as a snapshot is valid, or never:
   * nothing is signed until it does. `looked_at`: RFC 3339.
   */
  | { outcome: 'verifier_silent'; looked_at: string | null }
  | {
      outcome: 'published';
      generation: number;
      treeSize: number;
      newProofs: number;
      judgedAnew: number;
      /** Changes of share tokens and packages that were taken up. */
      grants: number;
    };

/**
 * One publication, from the registry to the public. The order of its steps is what makes it safe
 * to die after any of them; there is no recovery but the next tick, which starts from what is
 * published and does the same again.
 */
export async function tick(ctx: TickContext): Promise<TickReport> {
  if (!(await ctx.leadership.take())) return { outcome: 'standby' };
  await ctx.writer.prepare();

  const published = await ctx.directory.manifest();
  try {
    return await publishNext(ctx, published);
  } catch (error) {
    const mismatch = error instanceof PublisherStopped && error.code === 'tree_mismatch';
    if (!mismatch || published === null) throw error;
    try {
      await withdrawFailed(ctx, published);
    } catch (cause) {
      if (cause instanceof PublisherStopped || cause instanceof LeadershipLost) throw cause;
      // Not stopped yet: the next tick comes here again.
      throw new Error(`Failed proofs could not be withdrawn. ${error.message}`, { cause });
    }
    throw error;
  }
}

async function publishNext(ctx: TickContext, published: Published | null): Promise<TickReport> {
  const began = ctx.clock.now();
  const pinned = published?.opened.manifest.index_parts ?? [];
  // Read first: what was over by then is among what is read from here on.
  const lookedAt = await ctx.registry.upkeepDoneAt();
  const frontier = await ctx.registry.frontier();
  const stored = await storedCheckpoint(ctx);
  if (stored === null && (await ctx.registry.hasEnded(ctx.logSigner.name))) {
    throw ended(ctx.logSigner.name);
  }

  // What may be published is what the verifier found and what extends everything ever published:
  // in the manifest, in the checkpoint file, signed by a publisher that died before writing it, or
  // kept by somebody else.
  const file = await ctx.directory.checkpoint();
  const anchors: [TreeHead, string][] = [];
  if (published !== null) anchors.push([published.opened.checkpoint, 'the published snapshot']);
  if (file !== null) anchors.push([file.checkpoint, 'the published checkpoint']);
  if (stored !== null) anchors.push([stored, 'the last signed checkpoint']);
  if (ctx.kept !== null) anchors.push([ctx.kept, 'the checkpoint of LAST_CHECKPOINT']);
  if (frontier === null) {
    for (const [anchor, what] of anchors) throw behind(0, anchor.size, what);
    return { outcome: 'waiting' };
  }
  const head: TreeHead = { size: frontier.treeSize, root: frontier.root };
  const tree = await extending(ctx, head, anchors);
  // Read before the verdicts themselves: what is decided in between is taken up again, not missed.
  const changes = await verdictChanges(ctx, published, frontier.verdictId);
  const grants = await grantChanges(ctx, pinned);
  const vouchedUntil = Math.min(began, lookedAt ?? -Infinity) + ctx.validForMs;
  if (vouchedUntil <= began) {
    return {
      outcome: 'verifier_silent',
      looked_at: lookedAt === null ? null : formatTime(lookedAt),
    };
  }

  // Commit point of the checkpoint. From here on some public eye may hold us to it, so it is in the
  // database before any file says so, and only if no other publisher extended the same one.
  await ctx.leadership.require();
  const note =
    stored?.size === head.size
      ? noteInUse(ctx, stored)
      : await signCheckpoint(ctx, head, stored?.size ?? 0);

  // Files that nothing refers to yet. A death here leaves some, which the next tick finds in place
  // or the janitor takes away.
  const before = {
    size: published?.opened.manifest.tree_size ?? 0,
    pins: pinned,
  };
  const index = new IndexBuilder(ctx, before.pins);
  let newProofs = 0;
  if (tree !== null) {
    const proofsBefore = published?.opened.manifest.proofs ?? 0;
    for await (const run of newLeaves(ctx, tree, before.size, proofsBefore)) {
      await ctx.writer.put(run.files);
      newProofs += run.proofs;
      if (run.rows !== null) await index.add(run.rows);
    }
  }
  const rejudged: string[] = [];
  for await (const records of judgedAnew(ctx, before, head.size, changes.leaves)) {
    await index.addRecords(records);
    rejudged.push(...records.map(({ id }) => id));
  }
  // Packages repeat what the records of their members say, which are therefore written by now.
  const members = new PublishedMembers(ctx, await index.finish());
  for await (const records of packagesAnew(ctx, members, rejudged)) {
    await index.addRecords(records, PACKAGE_PARTS);
  }
  let granted = 0;
  let waits = false;
  for await (const { packages, shares, taken, waits: isWaiting } of changedGrants(
    ctx,
    members,
    grants,
  )) {
    await index.addRecords(packages, PACKAGE_PARTS);
    await index.addRecords(shares, SHARE_PARTS);
    granted += taken;
    waits = isWaiting;
  }
  const keys = await keysAt(ctx, head.size);
  await ctx.writer.put([keys.file]);
  const pins = await index.finish();

  // The log's own pointer: every tile and entry that it commits to is durable by now.
  if (file?.note !== note) {
    await ctx.writer.put([{ path: CHECKPOINT_PATH, bytes: utf8(note), replaces: true }]);
  }

  // Commit point of the snapshot: the manifest, last, and only over the one that this tick began
  // with. Also when nothing is new, because a manifest asserts for a short time only.
  const now = ctx.clock.now();
  const isCut =
    changes.leaves.length === VERDICTS_PER_TICK ||
    grants.length === GRANTS_PER_TICK ||
    (granted < grants.length && !waits);
  const manifest: Manifest = {
    schema_version: SNAPSHOT_SCHEMA,
    generation: nextGeneration(published, now),
    ...validity(isCut ? published : null, vouchedUntil, began, now),
    tree_size: head.size,
    root: toBase64(head.root),
    checkpoint: note,
    proofs: (published?.opened.manifest.proofs ?? 0) + newProofs,
    window: ctx.windowProofs,
    verdict_cursor: changes.cursor,
    keys: keys.pin,
    index_parts: pins,
  };
  await putManifest(ctx, manifest, published);
  // What extends this extends that too.
  ctx.kept = null;

  await ctx.janitor.sweep(manifest, now);
  return {
    outcome: 'published',
    generation: manifest.generation,
    treeSize: head.size,
    newProofs,
    judgedAnew: rejudged.length,
    grants: granted,
  };
}

/**
 * The verified tree, shown to extend every anchor; null when there is nothing to add because all
 * of them are this very tree.
 */
async function extending(
  ctx: TickContext,
  head: TreeHead,
  anchors: readonly (readonly [TreeHead, string])[],
): Promise<VerifiedTree | null> {
  let grown = anchors.length === 0;
  for (const [anchor, what] of anchors) {
    if (anchor.size > head.size) throw behind(head.size, anchor.size, what);
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

interface StoredCheckpoint extends TreeHead {
  note: string;
  signedBy: Vkey;
}

/** The last checkpoint that this log's keys signed, whether or not it came to be published. */
async function storedCheckpoint(ctx: TickContext): Promise<StoredCheckpoint | null> {
  const stored = await ctx.registry.latestCheckpoint();
  if (stored === null) return null;
  try {
    const { log } = ctx.trust;
    const { checkpoint, key } = openCheckpointNote(stored.note, log, log[0].name, ctx.verify);
    const { size, root } = checkpoint;
    if (size !== stored.treeSize) throw new Error(`the note is of size ${size}`);
    return { size, root, note: stored.note, signedBy: key };
  } catch (cause) {
    throw new PublisherStopped(
      'checkpoint_unverifiable',
      `The database's checkpoint of size ${stored.treeSize} is not signed by this publisher's log key for ${ctx.logSigner.name}. ` +
        'Give the publisher the LOG_KEY_FILE and LOG_ORIGIN of this log; if its key was changed on purpose, name the earlier one in LOG_RETIRED_VKEYS.',
      { cause },
    );
  }
}

/**
 * The note for a tree that has one already. After a change of keys it is signed once more: the same
 * size and root, which the database holds us to, under the key that readers go over to. Signing is
 * deterministic, so this gives the same bytes with every tick.
 */
function noteInUse(ctx: TickContext, { note, signedBy, size, root }: StoredCheckpoint): string {
  const { name } = ctx.logSigner;
  if (equalBytes(signedBy.keyHash, ctx.logSigner.keyHash)) return note;
  return signNote(formatCheckpoint({ origin: name, size, root }), ctx.logSigner);
}

async function signCheckpoint(ctx: TickContext, head: TreeHead, previous: number): Promise<string> {
  const note = signNote(formatCheckpoint({ origin: ctx.logSigner.name, ...head }), ctx.logSigner);
  const { size: treeSize, root } = head;
  if (!(await ctx.registry.insertCheckpoint({ treeSize, root, note, previous }))) {
    await ctx.leadership.release();
    throw new LeadershipLost('another publisher has signed a checkpoint in the meantime');
  }
  return note;
}

async function keysAt(
  ctx: TickContext,
  size: number,
): Promise<{ file: PublishedFile; pin: Manifest['keys'] }> {
  const entries = (await ctx.registry.keyEntries())
    .filter(({ leafIndex }) => leafIndex < size)
    .map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }))
    .filter((row): row is { leafIndex: number; entry: KeyEntry } => row.entry.type === 'key');
  const bytes = keysFile({ aep: aepKeys(ctx.sha256, entries), ...retiredKeys(ctx) });
  const name = toHex(ctx.sha256(bytes));
  return {
    file: { path: segmentPath(name), bytes, replaces: false },
    pin: { sha256: name, bytes: bytes.length },
  };
}

/** Left out while there are none, so that older readers know the file. */
function retiredKeys({ trust, sha256 }: TickContext): Pick<KeysFile, 'retired'> {
  const vkeys = ([, ...retired]: PinnedKeys): string[] =>
    retired.map(({ name, publicKey }) => formatVkey(sha256, name, publicKey));
  const retired = { log: vkeys(trust.log), snapshot: vkeys(trust.snapshot) };
  return retired.log.length + retired.snapshot.length === 0 ? {} : { retired };
}
