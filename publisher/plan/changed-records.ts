import { parseEntry } from '#protocol/entries';
import {
  eventsOf,
  mergeEvents,
  publishedEvents,
  type RevocationInHistory,
} from '#protocol/history';
import type { Place } from '#protocol/snapshot/find';
import type { IndexPartPin } from '#protocol/snapshot/manifest';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import type { CycleContext } from '../context.js';
import type { RenderedRecord } from '../store/index-builder.js';
import { eventsIn, factsOfRecord, revokedIn, isUnchanged } from '../render/read-record.js';
import { renderRecord } from '../render/record.js';

/** The tree and index that were published before this cycle. */
export interface Before {
  size: number;
  pins: readonly IndexPartPin[];
}

/** Records held in memory at once. */
const AT_ONCE = 4096;

/**
 * Records that replace published ones, after a revocation below `size` or a new verdict. A change of
 * the history alone replaces a record too, such as the failure of a revoked proof. Only what may change
 * is read from the registry; the facts come from the published record.
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
  // Verified columns match the AEP; a record first published while they failed may differ, so they
  // replace its facts. A failing leaf keeps its published facts.
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
export type Revocations = Map<string, RevocationInHistory[]>;

/** @param entries in log order */
export function revocationsIn(
  entries: readonly { leafIndex: number; body: Uint8Array }[],
): Revocations {
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
