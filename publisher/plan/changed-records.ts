import { parseEntry } from '#protocol/entries';
import { eventsOf, mergeEvents, publishedEvents, type RevocationInHistory } from '#protocol/history';
import type { Place } from '#protocol/snapshot/find';
import type { IndexPartPin } from '#protocol/snapshot/manifest';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import type { CycleContext } from '../context.js';
import type { RenderedRecord } from '../render/files.js';
import { eventsIn, factsOfRecord, revokedIn, saysAlready } from '../render/read-record.js';
import { renderRecord } from '../render/record.js';

/** What was published before this tick. */
export interface Before {
  size: number;
  pins: readonly IndexPartPin[];
}

/** How many records are held in memory at once. */
const AT_ONCE = 4096;

/**
 * Records that replace published ones, because the log revokes an artifact of them below `size` or
 * the verifier changed its mind about their leaf: where a status changes, and also where something
 * became of the proof that changes none, such as a failure of what is revoked already, so that its
 * history is whole. What is asked of the registry is only what may change; the facts are taken from
 * what is published.
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
    const records = await judge(ctx, before, size, all.slice(at, at + AT_ONCE), failedOnly);
    if (records.length > 0) yield records;
  }
}

async function judge(
  ctx: CycleContext,
  before: Before,
  size: number,
  proofIds: readonly string[],
  failedOnly: boolean,
): Promise<RenderedRecord[]> {
  const published: { proofId: string; place: Place; record: Uint8Array }[] = [];
  for (const proofId of proofIds) {
    // A proof that is not published yet is among the new leaves, and judged there.
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
  // Columns that pass are what the AEP says; a record that was first published while they did not
  // may say something else. Of a leaf that fails, what the public has seen stands.
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
    const judgement = {
      verdict,
      revoked: ofLeaf.revocations.map(({ kind }) => kind),
      toldRevoked: revokedIn(record, proofId),
      // What was told of it stays told, whatever the registry has lost since.
      events: publishedEvents(mergeEvents(eventsIn(record, proofId), eventsOf(facts, ofLeaf))),
    };
    if (saysAlready(record, facts, judgement)) return [];
    const { leafIndex, proofNumber } = place;
    return [{ id: proofId, leafIndex, proofNumber, bytes: renderRecord(facts, judgement) }];
  });
}

/** Which proof a published leaf is, by the published entry; null when it is no proof. */
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
