import { equalBytes } from '#protocol/bytes';
import { parseEntry, proofEntryText } from '#protocol/entries';
import {
  eventsOf,
  publishedEvents,
  mergeEvents,
  type RevocationInHistory,
} from '#protocol/history';
import type { Place } from '#protocol/snapshot/find';
import type { IndexRows } from '#protocol/snapshot/index-part';
import type { IndexPartPin } from '#protocol/snapshot/manifest';
import {
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
  tilesBetween,
  tileWidth,
  decodeEntryBundle,
} from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import type { ProofLeaf } from '#sql/log/log';
import type { LeafVerdict } from '#sql/log/verdicts';
import type { CycleContext } from '../context.js';
import { FatalPublishError } from '../errors.js';
import type { Leaf, RegistryView } from '../registry/sql-registry.js';
import {
  eventsIn,
  factsOfRecord,
  revokedIn,
  isUnchanged,
  factsOfLeaf,
  type CurrentStatus,
  renderRecord,
} from '../render/record.js';
import { bodiesFile, type RenderedRecord } from '../store/index-builder.js';
import type { PublishedFile } from '../store/writer.js';
import type { PublishedKeys } from './inputs.js';
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
  // A revocation follows its proof in the log, so new leaves contain all revocations of new proofs.
  const revocations = revocationsIn(await registry.statusEntries(from, size));
  let proofNumber = proofsBefore;
  // The first bundle may be published as a partial one: it is written again at its new width.
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
    effect: leaf.effect,
    environment: leaf.environment,
    key_id: leaf.keyId,
    valid_until: leaf.validUntil,
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
 * Statuses of unpublished proofs, by leaf index. The effective verdict suffices for most proofs;
 * the full history is read only for those with a verdict on their single leaf or a revocation.
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
      // Verdict and events come from the same read, so a record never contradicts its history.
      verdict: history.verdicts.at(-1),
      revoked: history.revocations.map(({ kind }) => kind),
      events: publishedEvents(eventsOf(leaf, history)),
    });
  }
  return statuses;
}

/** The tree and index that were published before this cycle. */
export interface Before {
  size: number;
  pins: readonly IndexPartPin[];
}

/** Records in memory at once. */
const AT_ONCE = 4096;

/**
 * Records that replace published ones, after a revocation below `size` or a new verdict. A mere
 * change of the history replaces a record too, such as the failure of a revoked proof. The registry
 * provides only data that may change; the facts come from the published record.
 */
export async function* changedRecords(
  ctx: CycleContext,
  before: Before,
  size: number,
  changedLeaves: readonly number[],
  { failedOnly = false } = {},
): AsyncGenerator<RenderedRecord[]> {
  const revoked = revocationsIn(await ctx.registry.statusEntries(before.size, size));
  const proofIds = new Set(revoked.keys());
  for (const leafIndex of new Set(changedLeaves)) {
    if (leafIndex >= before.size) continue;
    const proofId = await proofAt(ctx, before.size, leafIndex);
    if (proofId !== null) proofIds.add(proofId);
  }
  const all = [...proofIds];
  for (let at = 0; at < all.length; at += AT_ONCE) {
    ctx.progress();
    const records = await rerender(ctx, before, size, all.slice(at, at + AT_ONCE), failedOnly);
    if (records.length > 0) yield records;
  }
}

async function rerender(
  ctx: CycleContext,
  before: Before,
  size: number,
  proofIds: readonly string[],
  failedOnly: boolean,
): Promise<RenderedRecord[]> {
  const published: { proofId: string; place: Place; record: Uint8Array }[] = [];
  for (const proofId of proofIds) {
    // A proof without a published record is among the new leaves, and newLeaves renders it.
    const found = await ctx.index.find(before.pins, proofId);
    if (found !== null) published.push({ proofId, ...found });
  }
  if (published.length === 0) return [];
  const { registry } = ctx;
  const [statusEntries, histories] = await Promise.all([
    registry.statusEntriesOf(
      published.map(({ proofId }) => proofId),
      size,
    ),
    registry.verdictHistories(published.map(({ place }) => place.leafIndex)),
  ]);
  const revocations = revocationsIn(statusEntries);
  // The columns of a passing leaf match the AEP. A record first published while the leaf failed may
  // differ, so they replace its facts. A failing leaf keeps its published facts.
  const passing = published.flatMap(({ place }) =>
    histories.get(place.leafIndex)?.at(-1)?.outcome === 'pass' ? [place.leafIndex] : [],
  );
  const verifiedColumns = new Map(
    (await registry.proofsAt(passing)).map(
      ({ leafIndex, effect, isOutcome, environment, keyId }) => [
        leafIndex,
        { effect, isOutcome, environment, keyId },
      ],
    ),
  );
  return published.flatMap(({ proofId, place, record }) => {
    const ofLeaf = {
      verdicts: histories.get(place.leafIndex) ?? [],
      revocations: revocations.get(proofId) ?? [],
    };
    const verdict = ofLeaf.verdicts.at(-1);
    if (failedOnly && (verdict === undefined || verdict.outcome === 'pass')) return [];
    const facts = { ...factsOfRecord(record, proofId), ...verifiedColumns.get(place.leafIndex) };
    const status = {
      verdict,
      revoked: ofLeaf.revocations.map(({ kind }) => kind),
      publishedRevoked: revokedIn(record, proofId),
      // Published events stay, even if the registry lost them.
      events: publishedEvents(mergeEvents(eventsIn(record, proofId), eventsOf(facts, ofLeaf))),
    };
    if (isUnchanged(record, facts, status)) return [];
    const { leafIndex, proofNumber } = place;
    return [{ id: proofId, leafIndex, proofNumber, bytes: renderRecord(facts, status) }];
  });
}

/** The proof id of a published leaf, from the published entry; null for status and key entries. */
async function proofAt(ctx: CycleContext, size: number, leafIndex: number): Promise<string | null> {
  const index = Math.floor(leafIndex / TILE_WIDTH);
  const path = entriesPath(index, tileWidth(0, index, size));
  const bundle = await ctx.directory.read(path);
  if (bundle === null) throw ctx.directory.damaged(`${path} is missing`);
  try {
    const entry = parseEntry(decodeEntryBundle(bundle)[leafIndex % TILE_WIDTH] ?? new Uint8Array());
    return entry.type === 'proof' ? entry.proof_id : null;
  } catch (cause) {
    throw ctx.directory.damaged(`${path} is corrupt`, cause);
  }
}

/** The revocations of each proof, by its id, in log order. */
type Revocations = Map<string, RevocationInHistory[]>;

/** @param entries in log order */
function revocationsIn(entries: readonly { leafIndex: number; body: Uint8Array }[]): Revocations {
  const revocations: Revocations = new Map();
  for (const { leafIndex, body } of entries) {
    const entry = parseEntry(body);
    if (entry.type !== 'status') continue;
    const ofProof = revocations.get(entry.proof_id) ?? [];
    revocations.set(entry.proof_id, ofProof);
    ofProof.push({
      leafIndex,
      kind: entry.artifact_kind,
      at: parseTime(entry.time),
      reasonHash: entry.reason_hash,
    });
  }
  return revocations;
}
