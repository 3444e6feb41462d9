import { equalBytes } from '#protocol/bytes';
import { parseEntry, proofEntryText } from '#protocol/entries';
import { eventsOf, publishedEvents } from '#protocol/history';
import type { IndexRows } from '#protocol/snapshot/index-part';
import {
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
  tilesBetween,
  tileWidth,
} from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import type { CycleContext } from '../context.js';
import { FatalPublishError } from '../errors.js';
import type { LeafVerdict } from '#sql/log/verdicts';
import type { ProofLeaf } from '#sql/log/log';
import type { Leaf, RegistryView } from '../registry/sql-registry.js';
import { bodiesFile } from '../store/index-builder.js';
import { factsOfLeaf, type CurrentStatus, renderRecord } from '../render/record.js';
import type { PublishedFile } from '../store/writer.js';
import { type Revocations, revocationsIn } from './changed-records.js';
import type { PublishedKeys } from './keys.js';
import type { VerifiedTree } from './tree.js';

/** Files and index rows of a run of new leaves. */
export interface NewLeaves {
  files: PublishedFile[];
  /** Null when no leaf of the run is a proof. */
  rows: IndexRows | null;
  proofs: number;
}

/**
 * Renders the leaves from `from` up to the tree's size, in runs that fit in memory: tiles, entry
 * bundles, bodies and index rows. Checks every leaf against the tree first.
 *
 * @param proofsBefore how many of the leaves before `from` are proofs
 * @param keys the key list of the same snapshot
 */
export async function* newLeaves(
  ctx: CycleContext,
  tree: VerifiedTree,
  from: number,
  proofsBefore: number,
  keys: Pick<PublishedKeys, 'entries'>,
): AsyncGenerator<NewLeaves> {
  const { size } = tree.head;
  const { registry, chunkLeaves } = ctx;
  if (from === size) return;
  // A revocation follows its proof in the log, so new leaves hold every revocation of a new proof.
  const revocations = revocationsIn(await registry.statusEntries(from, size));
  let proofNumber = proofsBefore;
  // The first bundle may be a published partial one: it is written again at its new width.
  for (let first = from - (from % TILE_WIDTH); first < size; first += chunkLeaves) {
    const end = Math.min(first + chunkLeaves, size);
    const leaves = await registry.leaves(first, end);
    ctx.progress();
    const files = await logFiles(tree, leaves, first, end);
    const fresh = leaves.filter((leaf) => leaf.leafIndex >= from);
    requireEntriesSeen(fresh, revocations, keys);
    const verdicts = await registry.verdictsForRange(Math.max(first, from), end);
    const proofs = fresh.filter((leaf): leaf is ProofLeaf => leaf.kind === 'proof');
    const statuses = await firstStatuses(registry, proofs, verdicts, revocations);
    const records = proofs.map((leaf, i) => ({
      id: leaf.proofId,
      leafIndex: leaf.leafIndex,
      proofNumber: proofNumber + i,
      bytes: renderRecord(
        factsOfLeaf(leaf, ctx.logSigner.name, size),
        statuses.get(leaf.leafIndex)!,
      ),
    }));
    proofNumber += proofs.length;
    if (records.length === 0) {
      yield { files, rows: null, proofs: 0 };
    } else {
      const { file, rows } = bodiesFile(records);
      yield { files: [...files, file], rows, proofs: records.length };
    }
  }
  yield { files: await upperTiles(tree, from), rows: null, proofs: 0 };
}

/** The leaf tiles and entry bundles of [first, end), `first` being the first leaf of a tile. */
async function logFiles(
  tree: VerifiedTree,
  leaves: readonly Leaf[],
  first: number,
  end: number,
): Promise<PublishedFile[]> {
  if (
    leaves.length !== end - first ||
    leaves.some((leaf, offset) => leaf.leafIndex !== first + offset)
  ) {
    throw new FatalPublishError(
      'tree_mismatch',
      `The registry does not have each of the leaves ${first} to ${end - 1} once. Restore the database from a backup that holds every published leaf, and start the publisher again.`,
    );
  }
  const entries = leaves.map(entryBytes);
  const files: PublishedFile[] = [];
  for (let start = first; start < end; start += TILE_WIDTH) {
    const index = start / TILE_WIDTH;
    const width = tileWidth(0, index, tree.head.size);
    const hashes = await tree.tile(0, index);
    const bundle = entries.slice(start - first, start - first + width);
    tree.requireLeaves(start, bundle, hashes);
    files.push(
      { path: tilePath(0, index, width), bytes: hashes, replaces: false },
      { path: entriesPath(index, width), bytes: encodeEntryBundle(bundle), replaces: false },
    );
  }
  return files;
}

async function upperTiles(tree: VerifiedTree, from: number): Promise<PublishedFile[]> {
  const files: PublishedFile[] = [];
  for (const { level, index, width } of tilesBetween(from, tree.head.size)) {
    if (level === 0) continue;
    const bytes = await tree.tile(level, index);
    files.push({ path: tilePath(level, index, width), bytes, replaces: false });
  }
  return files;
}

/** Entry bytes from a row. They are unverified until the tree confirms them. */
function entryBytes(leaf: Leaf): Uint8Array {
  if (leaf.kind === 'other') return leaf.bytes;
  const text = proofEntryText({
    proof_id: leaf.proofId,
    aep_hash: leaf.aepHash,
    proof_record_hash: leaf.proofRecordHash,
    time: formatTime(leaf.acceptedAt),
  });
  return Buffer.from(text);
}

/** Every revocation and key entry in the tree to be signed must have been applied. */
function requireEntriesSeen(
  leaves: readonly Leaf[],
  revocations: Revocations,
  keys: Pick<PublishedKeys, 'entries'>,
): void {
  for (const leaf of leaves) {
    if (leaf.kind !== 'other') continue;
    const entry = parseEntry(leaf.bytes);
    if (entry.type === 'key') {
      if (equalBytes(keys.entries.get(leaf.leafIndex) ?? new Uint8Array(), leaf.bytes)) continue;
      throw new Error(`the registry did not list the key entry at leaf ${leaf.leafIndex}`);
    }
    if (entry.type !== 'status') continue;
    const listed = revocations.get(entry.proof_id)?.find((one) => one.leafIndex === leaf.leafIndex);
    if (listed?.kind !== entry.artifact_kind || listed.reasonHash !== entry.reason_hash) {
      throw new Error(`the registry did not list the revocation at leaf ${leaf.leafIndex}`);
    }
  }
}

/**
 * Statuses of unpublished proofs, by leaf index. The effective verdict suffices for most; the full
 * history is read only for proofs with a verdict on their single leaf or a revocation.
 */
export async function firstStatuses(
  registry: RegistryView,
  proofs: readonly ProofLeaf[],
  verdicts: ReadonlyMap<number, LeafVerdict>,
  revocations: Revocations,
): Promise<Map<number, CurrentStatus>> {
  const statuses = new Map<number, CurrentStatus>();
  const eventful: ProofLeaf[] = [];
  for (const leaf of proofs) {
    const verdict = verdicts.get(leaf.leafIndex);
    if (verdict?.own === true || revocations.has(leaf.proofId)) eventful.push(leaf);
    else statuses.set(leaf.leafIndex, { verdict, revoked: [] });
  }
  if (eventful.length === 0) return statuses;
  const histories = await registry.verdictHistories(eventful.map(({ leafIndex }) => leafIndex));
  for (const leaf of eventful) {
    const history = {
      verdicts: histories.get(leaf.leafIndex) ?? [],
      revocations: revocations.get(leaf.proofId) ?? [],
    };
    statuses.set(leaf.leafIndex, {
      // The verdict is of the same read as the events, so a record never contradicts its history.
      verdict: history.verdicts.at(-1),
      revoked: history.revocations.map(({ kind }) => kind),
      events: publishedEvents(eventsOf(leaf, history)),
    });
  }
  return statuses;
}
