import type { ProofEvent, PublicEvent } from './schemas/proof-view.js';
import type { ArtifactKind, Outcome } from './status.js';
import { formatTime } from './time.js';

/** One verdict that covers a proof, as the verifier wrote it. */
export interface VerdictInHistory {
  verdictId: number;
  /** One row for a whole range of leaves, which all passed unless a row of their own says otherwise. */
  frontier: boolean;
  /** The size of the log that the verifier saw. */
  treeSize: number;
  outcome: Outcome;
  expired: readonly ArtifactKind[];
  /** Epoch milliseconds. */
  verifiedAt: number;
  /** Names of the checks that failed. */
  failedChecks: readonly string[];
}

export interface RevocationInHistory {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  at: number;
  /** Lower-case hex. */
  reasonHash: string;
}

/**
 * What became of a proof, in order. A verdict that says what the one before it said is no event:
 * the registry is verified again and again.
 *
 * @param proof `acceptedAt` in epoch milliseconds
 * @param history the verdicts oldest first, the last one being in force; the revocations in log
 *   order, a repeated one included
 */
export function eventsOf(
  proof: { acceptedAt: number; leafIndex: number },
  history: {
    verdicts: readonly VerdictInHistory[];
    revocations: readonly RevocationInHistory[];
  },
): ProofEvent[] {
  const found = effectiveVerdicts(history.verdicts).flatMap((verdict, index, all) =>
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
    ...[...found, ...revoked].sort(inOrder),
  ];
}

/**
 * A leaf that fails when it is first looked at gets its own row in the transaction that moves the
 * frontier past it. The frontier's row was never in force for it, and VALID was never said.
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
    events.push(foundEvent(verdict, seen));
  }
  const over = verdict.expired.filter((kind) => before?.expired.includes(kind) !== true);
  if (over.length > 0) events.push({ event: 'expired', ...seen, artifacts: over });
  return events;
}

function foundEvent(
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
 * What the public was told of a proof, and what is known now: nothing that was told is taken back,
 * also when the registry has lost it. `told` is what {@link eventsOf}, {@link plainEvents} or this
 * made before, as far as it was published.
 */
export function mergeEvents(
  told: readonly PublicEvent[],
  known: readonly PublicEvent[],
): PublicEvent[] {
  const added = new Map(keyed(known));
  const kept = keyed(told).map(([key, event]): PublicEvent => {
    const again = added.get(key);
    added.delete(key);
    // The told one may lack the size of the log, and in nothing else may it be amended.
    return again === undefined ? event : { ...again, ...event };
  });
  const isTold = new Set(kept);
  const state = new Told();
  return [...kept, ...added.values()]
    .sort(inOrder)
    .filter((event) => state.changesBy(event) || isTold.has(event));
}

/** Each takes the place of the one before it. */
const OUTCOMES: ReadonlySet<string> = new Set(['verified', 'failed', 'erased']);
/** How many times over it is told that a proof was found good or bad, at the beginning and at the end. */
const OUTCOMES_AT_EACH_END = 50;

/**
 * As much of a history as is published. A leaf can fail and be mended again and again, and each time
 * its record is written anew: of very many findings those in the middle are left out. All else that
 * becomes of a proof does so a few times at most.
 */
export function publishedEvents(events: readonly PublicEvent[]): PublicEvent[] {
  const isOutcome = ({ event }: PublicEvent): boolean => OUTCOMES.has(event);
  const outcomes = events.filter(isOutcome);
  const leftOut = new Set(outcomes.slice(OUTCOMES_AT_EACH_END, -OUTCOMES_AT_EACH_END));
  return events.filter((event) => !leftOut.has(event));
}

/** Whether two histories are of the same events, also if one says less of some. */
export function areSameEvents(
  some: readonly PublicEvent[],
  others: readonly PublicEvent[],
): boolean {
  const keys = new Set(keyed(some).map(([key]) => key));
  return some.length === others.length && keyed(others).every(([key]) => keys.has(key));
}

/**
 * What follows from events that were told. With an older row lost, a later one may look like a
 * change that it was not.
 */
class Told {
  private outcome: string | undefined;
  private readonly over = new Set<ArtifactKind>();

  changesBy(event: PublicEvent): boolean {
    if (OUTCOMES.has(event.event)) {
      const isChange = event.event !== this.outcome;
      this.outcome = event.event;
      return isChange;
    }
    if (event.event !== 'expired') return true;
    const isChange = event.artifacts.some((kind) => !this.over.has(kind));
    for (const kind of event.artifacts) this.over.add(kind);
    return isChange;
  }
}

/**
 * What there is to tell of a proof of which nothing more became than that it was verified, from what
 * its published body has.
 *
 * @param verifiedAt absent while nobody has verified it
 */
export function plainEvents(
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

/** By what makes each the event that it is; those alike are counted. */
function keyed(events: readonly PublicEvent[]): [string, PublicEvent][] {
  const alike = new Map<string, number>();
  return events.map((event) => {
    const key = `${event.event} ${placeOf(event)}`;
    const number = (alike.get(key) ?? 0) + 1;
    alike.set(key, number);
    return [`${key} ${number}`, event];
  });
}

/** Where it happened: in the log, which has a place for each, or when. */
function placeOf(event: PublicEvent): string | number {
  if (event.event === 'accepted') return '';
  return 'leaf_index' in event ? event.leaf_index : event.at;
}

/**
 * By times, which are of one clock and of one spelling that sorts as they do. At the same moment
 * what was found comes before what was logged.
 */
function inOrder(a: PublicEvent, b: PublicEvent): number {
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

/** Acceptance and append come before anything else, whatever a clock said. */
function timeOf(event: PublicEvent): string {
  return event.event === 'accepted' || event.event === 'appended' ? '' : event.at;
}
