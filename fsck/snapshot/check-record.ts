import {
  areSameEvents,
  eventsOf,
  impliedEvents,
  publishedEvents,
  type RevocationInHistory,
} from '#protocol/history';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  isOutcomeAnswer,
  isProofOnly,
  type ArtifactKind,
  type Decided,
} from '#protocol/status';
import { TILE_WIDTH } from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import type { FindingCode } from '../codes.js';
import type { LeafCheckResult } from '../registry/check-leaf.js';
import {
  admissible,
  admissibleStatuses,
  candidates,
  type Admissible,
  type SnapshotScope,
} from './admissible.js';
import { difference, expectedTail, LEVELS, type Facts } from './expected-body.js';
import type { PublishedRecord } from './read-record.js';

export interface RecordFault {
  code: FindingCode;
  expected: string;
}

/** A published proof and its sources. */
export interface ProofToCheck {
  entry: ProofEntry;
  leafIndex: number;
  record: PublishedRecord;
  /** Null when the registry is skipped. */
  result: LeafCheckResult | null;
  /** From the log up to the manifest's size. */
  revocations: readonly RevocationInHistory[];
  scope: SnapshotScope;
  logOrigin: string;
}

/** The fault in a published proof; null when it equals the expected record. */
export function recordFault(proof: ProofToCheck): RecordFault | null {
  const { record, result, revocations, scope } = proof;
  const facts = factsOf(proof);
  if (facts === null || record.tail === null) {
    return { code: 'record_malformed', expected: 'the lookup response of a proof' };
  }
  const found = admissible(result, scope);
  const revoked = revocations.map(({ kind }) => kind);
  return (
    statusFault(record, facts, found, revoked) ??
    bodyFault(proof, facts, found) ??
    verifiedAtFault(proof) ??
    historyFault(proof)
  );
}

/** From the AEP; without it from the published record, which must then be consistent. */
function factsOf({ entry, leafIndex, record, result, logOrigin }: ProofToCheck): Facts | null {
  const { artifact, integrity, references } = (record.tail ?? {}) as Partial<
    Record<'artifact' | 'integrity' | 'references', Record<string, string>>
  >;
  const decision = result?.decision ?? {
    effect: artifact?.['effect'] as Decided['effect'],
    isOutcome: isOutcomeAnswer(artifact ?? {}, references ?? {}),
    environment: artifact?.['environment'] as 'sandbox' | 'live',
    keyId: integrity?.['key_id'] ?? '',
  };
  const isKnown =
    ['ADMIT', 'DENY'].includes(decision.effect) &&
    ['sandbox', 'live'].includes(decision.environment);
  return isKnown ? { entry, leafIndex, logOrigin, ...decision } : null;
}

function statusFault(
  record: PublishedRecord,
  decided: Decided,
  found: readonly Admissible[],
  revoked: readonly ArtifactKind[],
): RecordFault | null {
  let milder: RecordFault | null = null;
  for (const kind of ARTIFACT_KINDS) {
    const verification = record.parts[kind]?.verification;
    const exists = kind === 'proof' || !isProofOnly(decided);
    if (verification === undefined) {
      if (exists) milder ??= { code: 'body_differs', expected: `a ${kind}` };
      continue;
    }
    const statuses = exists ? admissibleStatuses(kind, decided, found, revoked) : new Set<string>();
    const { verification_status: status, can_assert_validity: asserts } = verification;
    const must = [...statuses].join(' or ') || 'nothing, as there is none';
    const expected = `${must} of the ${kind}, found ${status}`;
    const isAdmissible = statuses.has(status);
    const doesAssert = canAssertValidity(status) || asserts;
    if (doesAssert && !(isAdmissible && canAssertValidity(status))) {
      return { code: 'body_asserts', expected };
    }
    if (!isAdmissible) milder ??= { code: 'body_differs', expected };
  }
  return milder;
}

function bodyFault(
  { record, scope }: ProofToCheck,
  facts: Facts,
  found: readonly Admissible[],
): RecordFault | null {
  for (const [kind, part] of Object.entries(record.parts)) {
    const { verification_status: status, verified_at } = part.verification;
    const expected = {
      verification: {
        verification_status: status,
        can_assert_validity: canAssertValidity(status),
        frontend_recomputed: false,
        ...(verified_at === undefined ? {} : { verified_at }),
      },
      artifact: { artifact_level: LEVELS[kind as ArtifactKind] },
    };
    const differs = difference(expected, part);
    if (differs !== null) return { code: 'body_differs', expected: `${kind}: ${differs}` };
  }
  const width = widthIn(record.tail, facts.leafIndex, scope.size);
  const outcomes = new Set(found.map(({ outcome }) => outcome));
  const differences = [...outcomes].map((outcome) =>
    difference(expectedTail(facts, width, outcome), record.tail),
  );
  if (differences.includes(null)) return null;
  return { code: 'body_differs', expected: differences[0] ?? '' };
}

/** The width of the tile when it was first published, if plausible; otherwise the current width. */
function widthIn(tail: PublishedRecord['tail'], leafIndex: number, size: number): number {
  const widest = Math.min(TILE_WIDTH, size - Math.floor(leafIndex / TILE_WIDTH) * TILE_WIDTH);
  const { tile = '' } = (tail?.['downloads'] ?? {}) as { tile?: string };
  const partial = /\.p\/([0-9]+)$/.exec(String(tile));
  const width = partial === null ? TILE_WIDTH : Number(partial[1]);
  return width > leafIndex % TILE_WIDTH && width <= widest ? width : widest;
}

/** The published verification time must be that of a verdict. */
function verifiedAtFault({ record, result, entry }: ProofToCheck): RecordFault | null {
  const times = new Set(result?.verdicts.map(({ verifiedAt }) => formatTime(verifiedAt)));
  for (const part of Object.values(record.parts)) {
    const { verified_at: at } = part.verification;
    const isKnown = result === null ? at !== undefined && isTime(at) : times.has(at ?? '');
    if (!isKnown) {
      const expected = `a time at which ${entry.proof_id} was verified, found ${at ?? 'none'}`;
      return { code: 'body_differs', expected };
    }
  }
  return null;
}

function isTime(text: string): boolean {
  try {
    return parseTime(text) > 0;
  } catch {
    return false;
  }
}

/** The published history must equal the status history. */
function historyFault(proof: ProofToCheck): RecordFault | null {
  const { record, result, entry, leafIndex, revocations, scope } = proof;
  if (result === null) return null;
  const verifications = Object.values(record.parts).map(({ verification }) => verification);
  const isAsserted = verifications.every((one) => canAssertValidity(one.verification_status));
  const published =
    record.history ??
    impliedEvents(
      { accepted_at: entry.time, leaf_index: leafIndex },
      isAsserted ? verifications[0]?.verified_at : undefined,
    );
  const acceptedAt = parseTime(entry.time);
  const isWhole = candidates(result, scope).some((verdicts) => {
    const events = publishedEvents(eventsOf({ acceptedAt, leafIndex }, { verdicts, revocations }));
    return areSameEvents(events, published);
  });
  if (isWhole) return null;
  const expected = `the status history of ${entry.proof_id} from verdicts and revocations, found ${published.length} events`;
  return { code: 'history_differs', expected };
}
