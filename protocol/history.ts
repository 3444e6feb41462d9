import type { ProofEvent } from './schemas/proof-view.js';
import type { ArtifactKind, Outcome } from './status.js';
import { formatTime } from './time.js';

/** An event as records of version 1.0 have it. */
export type PublicEvent = ProofEvent | { event: 'verified'; at: string };

export interface VerdictInHistory {
  verdictId: number;
  /** A row for a whole range of leaves, which all passed unless they have a row of their own. */
  frontier: boolean;
  treeSize: number;
  outcome: Outcome;
  expired: readonly ArtifactKind[];
  /** Epoch milliseconds. */
  verifiedAt: number;
  failedChecks: readonly string[];
}

export interface RevocationInHistory {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  at: number;
  reasonHash: string;
}

/**
 * The events of a proof, in order. A verdict equal to the one before it adds no event, because the
 * verifier checks the registry repeatedly.
 *
 * @param proof `acceptedAt` in epoch milliseconds
 * @param history the verdicts, oldest first, the last one in force; the revocations in log order,
 *   repeated ones included
 */
export function eventsOf(
  proof: { acceptedAt: number; leafIndex: number },
  history: {
    verdicts: readonly VerdictInHistory[];
    revocations: readonly RevocationInHistory[];
  },
): ProofEvent[] {
  const verdictEvents = effectiveVerdicts(history.verdicts).flatMap((verdict, index, all) =>
    changes(verdict, all[index - 1]),
  );
  const revoked = history.revocations.map((revocation): ProofEvent => ({
    event: 'revoked',
    at: formatTime(revocation.at),
    artifact: revocation.kind,
    leaf_index: revocation.leafIndex,
    reason_hash: revocation.reasonHash,
  }));
  return [
    { event: 'accepted', at: formatTime(proof.acceptedAt) },
    { event: 'appended', leaf_index: proof.leafIndex },
    ...[...verdictEvents, ...revoked].sort(byTime),
  ];
}

/**
 * A leaf that fails its first verification gets its own row in the transaction that extends the
 * verified prefix. For this leaf the prefix row was never in force, so it is omitted.
 */
export function effectiveVerdicts(verdicts: readonly VerdictInHistory[]): VerdictInHistory[] {
  const singles = verdicts.filter(({ frontier }) => !frontier);
  return verdicts.filter(
    (row) =>
      !row.frontier ||
      !singles.some(
        ({ treeSize, verifiedAt }) => treeSize === row.treeSize && verifiedAt === row.verifiedAt,
      ),
  );
}

function changes(verdict: VerdictInHistory, before: VerdictInHistory | undefined): ProofEvent[] {
  const seen = { at: formatTime(verdict.verifiedAt), log_size: verdict.treeSize };
  const events: ProofEvent[] = [];
  if (verdict.outcome !== before?.outcome) {
    events.push(outcomeEvent(verdict, seen));
  }
  const expired = verdict.expired.filter((kind) => before?.expired.includes(kind) !== true);
  if (expired.length > 0) events.push({ event: 'expired', ...seen, artifacts: expired });
  return events;
}

function outcomeEvent(
  { outcome, failedChecks }: VerdictInHistory,
  seen: { at: string; log_size: number },
): ProofEvent {
  switch (outcome) {
    case 'pass':
      return { event: 'verified', ...seen };
    case 'erased':
      return { event: 'erased', ...seen };
    case 'fail':
      return { event: 'failed', ...seen, checks: [...failedChecks] };
  }
}

/**
 * The published events of a proof, completed with the events known now. A published event is never
 * removed, even when the registry has lost its row.
 *
 * @param published the result of {@link eventsOf}, {@link impliedEvents} or this function
 */
export function mergeEvents(
  published: readonly PublicEvent[],
  known: readonly PublicEvent[],
): PublicEvent[] {
  const added = new Map(withKeys(known));
  const kept = withKeys(published).map(([key, event]): PublicEvent => {
    const current = added.get(key);
    added.delete(key);
    // A published event may lack `log_size`; no other member may change.
    return current === undefined ? event : { ...current, ...event };
  });
  const isPublished = new Set(kept);
  const state = new EventState();
  return [...kept, ...added.values()]
    .sort(byTime)
    .filter((event) => state.changesBy(event) || isPublished.has(event));
}

const OUTCOMES: ReadonlySet<string> = new Set(['verified', 'failed', 'erased']);
/**
 * A proof can pass and fail any number of times; only this many outcomes at either end are
 * published.
 */
const PUBLISHED_OUTCOMES_PER_END = 50;

/**
 * The part of a history that is published. A leaf can fail, be repaired and fail again without
 * limit, so the outcomes in the middle are left out. All other events occur a few times at most.
 */
export function publishedEvents(events: readonly PublicEvent[]): PublicEvent[] {
  const isOutcome = ({ event }: PublicEvent): boolean => OUTCOMES.has(event);
  const outcomes = events.filter(isOutcome);
  const leftOut = new Set(outcomes.slice(PUBLISHED_OUTCOMES_PER_END, -PUBLISHED_OUTCOMES_PER_END));
  return events.filter((event) => !leftOut.has(event));
}

/** Whether two histories consist of the same events, even if one lacks members of some. */
export function areSameEvents(a: readonly PublicEvent[], b: readonly PublicEvent[]): boolean {
  const keys = new Set(withKeys(a).map(([key]) => key));
  return a.length === b.length && withKeys(b).every(([key]) => keys.has(key));
}

/**
 * Replays published events to drop those that change nothing: when an older verdict row is lost, a
 * later row can look like a change.
 */
class EventState {
  private outcome: string | undefined;
  private readonly expired = new Set<ArtifactKind>();

  changesBy(event: PublicEvent): boolean {
    if (OUTCOMES.has(event.event)) {
      const isChange = event.event !== this.outcome;
      this.outcome = event.event;
      return isChange;
    }
    if (event.event !== 'expired') return true;
    const isChange = event.artifacts.some((kind) => !this.expired.has(kind));
    for (const kind of event.artifacts) this.expired.add(kind);
    return isChange;
  }
}

/**
 * The events that a published body implies, when verification is all that happened to the proof.
 *
 * @param verifiedAt absent while the proof is unverified
 */
export function impliedEvents(
  { accepted_at, leaf_index }: { accepted_at: string; leaf_index: number },
  verifiedAt?: string,
): PublicEvent[] {
  const events: PublicEvent[] = [
    { event: 'accepted', at: accepted_at },
    { event: 'appended', leaf_index },
  ];
  if (verifiedAt !== undefined) events.push({ event: 'verified', at: verifiedAt });
  return events;
}

/** Pairs each event with an identifying key; equal events are numbered. */
function withKeys(events: readonly PublicEvent[]): [string, PublicEvent][] {
  const counts = new Map<string, number>();
  return events.map((event) => {
    const key = `${event.event} ${placeOf(event)}`;
    const number = (counts.get(key) ?? 0) + 1;
    counts.set(key, number);
    return [`${key} ${number}`, event];
  });
}

function placeOf(event: PublicEvent): string | number {
  if (event.event === 'accepted') return '';
  return 'leaf_index' in event ? event.leaf_index : event.at;
}

/**
 * Sorts by time. All times come from one clock and have one format that sorts as text. At equal
 * times, verification results come before log entries.
 */
function byTime(a: PublicEvent, b: PublicEvent): number {
  const [at, other] = [timeOf(a), timeOf(b)];
  if (at === other) return RANK[a.event] - RANK[b.event];
  return at < other ? -1 : 1;
}

const RANK = {
  accepted: 0,
  appended: 1,
  verified: 2,
  failed: 2,
  erased: 2,
  expired: 2,
  revoked: 3,
};

function timeOf(event: PublicEvent): string {
  return event.event === 'accepted' || event.event === 'appended' ? '' : event.at;
}
