import { readEntry } from '#protocol/entries';
import {
  areSameEvents,
  eventsOf,
  impliedEvents,
  publishedEvents,
  type RevocationInHistory,
  type VerdictInHistory,
} from '#protocol/history';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { PROOF_PARTS, segmentPath } from '#protocol/snapshot/manifest';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  isOutcomeAnswer,
  isProofOnly,
  type ArtifactKind,
  type Decided,
  verificationStatus,
  type Outcome,
  type VerificationStatus,
} from '#protocol/status';
import { entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import type { FindingCode } from '../findings.js';
import type { ChunkCheckResult, LeafCheckResult } from '../registry/check-leaf.js';
import type { PublishedContext } from './source.js';
import {
  difference,
  expectedTail,
  LEVELS,
  type Facts,
  readRecord,
  type PublishedRecord,
} from './record.js';
import { entriesIn, type PublicLog } from './log.js';
import type { Bodies, Parts } from './parts.js';

export interface ProofsState {
  /** Proofs before the position; the rows must contain the same count. */
  proofs: number;
  /** Proofs found by id. */
  found: number;
}

/** Looks up every proof of the public log like a reader, and compares it with the expected record. */
export class ProofWalk {
  readonly state: ProofsState;

  constructor(
    private readonly ctx: PublishedContext,
    private readonly log: PublicLog,
    private readonly parts: Parts,
    private readonly bodies: Bodies,
    state: ProofsState = { proofs: 0, found: 0 },
  ) {
    this.state = { ...state };
  }

  /**
   * @param from a multiple of 256
   * @param results the registry's results for these leaves; null when the registry is skipped
   */
  async step(from: number, to: number, results: ChunkCheckResult | null): Promise<void> {
    if (!this.log.isWhole) {
      this.ctx.findings.unchecked(
        'published proofs: entries of the public log are lost or damaged',
      );
      return;
    }
    const size = this.ctx.opened.manifest.tree_size;
    for (let start = from; start < Math.min(to, size); start += TILE_WIDTH) {
      const index = start / TILE_WIDTH;
      const path = entriesPath(index, tileWidth(0, index, this.log.size));
      const bundle = await this.ctx.files.read(path);
      // The check of the log reported a missing or damaged bundle.
      const entries = bundle === null ? [] : entriesIn(bundle);
      for (const [place, bytes] of entries.entries()) {
        const leafIndex = start + place;
        const entry = leafIndex < Math.min(to, size) ? readEntry(bytes) : null;
        if (entry?.type !== 'proof') continue;
        await this.check(entry, leafIndex, results?.get(leafIndex) ?? null);
        this.state.proofs += 1;
      }
    }
  }

  private async check(
    entry: ProofEntry,
    leafIndex: number,
    result: LeafCheckResult | null,
  ): Promise<void> {
    const { findings, opened } = this.ctx;
    const lookup = await this.parts.find(PROOF_PARTS, entry.proof_id);
    const leaf = `id=${entry.proof_id} leaf_index=${leafIndex}`;
    if (lookup.state === 'unknown') return;
    if (lookup.state === 'absent') {
      findings.add('record_missing', `index parts of kind proof, ${leaf}`, 'its row');
      return;
    }
    this.state.found += 1;
    const { row } = lookup;
    const where = `${segmentPath(row.file.name)} at ${row.offset}, ${leaf}`;
    if (row.leafIndex !== leafIndex || row.proofNumber !== this.state.proofs) {
      const expected = `leaf ${leafIndex} and ${this.state.proofs} proofs before it, found ${row.leafIndex} and ${row.proofNumber}`;
      findings.add('row_differs', `${segmentPath(row.pin.sha256)} ${leaf}`, expected);
    }
    const bytes = await this.bodies.record(row);
    if (bytes === null) return;
    const record = readRecord(bytes, entry.proof_id);
    if (record === null) {
      findings.add('record_malformed', where, 'the record of that proof');
      return;
    }
    const { manifest, validUntil, checkpoint } = opened;
    const fault = recordFault({
      entry,
      leafIndex,
      record,
      result,
      revocations: (this.log.revocations.get(entry.proof_id) ?? []).filter(
        (one) => one.leafIndex < manifest.tree_size,
      ),
      scope: {
        size: manifest.tree_size,
        verdictCursor: manifest.verdict_cursor,
        verifierCheckedAt: validUntil - this.ctx.snapshotTtlMs,
      },
      logOrigin: checkpoint.origin,
    });
    if (fault !== null) findings.add(fault.code, where, fault.expected);
  }
}

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
  /** The revocations in the log up to the manifest's size. */
  revocations: readonly RevocationInHistory[];
  scope: SnapshotScope;
  logOrigin: string;
}

/** The fault in a published proof; null when it equals the expected record. */
function recordFault(proof: ProofToCheck): RecordFault | null {
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

/** The facts in the AEP; without an AEP those of the published record, if consistent. */
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

/** A state that may be published; while the registry changes, several may be. */
interface Admissible {
  outcome: Outcome;
  expired: readonly ArtifactKind[];
}

/** The inputs that a manifest covers. */
interface SnapshotScope {
  /** Number of leaves. */
  size: number;
  /** Verdicts on single leaves up to this id are included; later verdicts may be. */
  verdictCursor: number;
  /** Artifacts expired by then must be published as expired; epoch milliseconds. */
  verifierCheckedAt: number;
}

/** Verdicts that the snapshot may show: those in effect at its making, or written meanwhile. */
function candidates(result: LeafCheckResult, scope: SnapshotScope): VerdictInHistory[][] {
  const { verdicts } = result;
  const before = verdicts.filter(({ frontier, verdictId, treeSize }) =>
    frontier ? treeSize <= scope.size : verdictId <= scope.verdictCursor,
  );
  const later = verdicts.filter((verdict) => !before.includes(verdict));
  return [before, ...later.map((_, i) => [...before, ...later.slice(0, i + 1)])];
}

/**
 * The admissible published states of a proof. The result of this check overrides a verdict: a
 * failing proof must not be valid, and an artifact that expired by its AEP is expired. A proof that
 * a compromised key voids may be valid until the verifier verifies it again, because readers void
 * it by the list of keys, which is checked against the log.
 *
 * @param result null when only the snapshot is checked: then only the log's own facts are required
 */
function admissible(result: LeafCheckResult | null, scope: SnapshotScope): Admissible[] {
  if (result === null) {
    return [
      { outcome: 'pass', expired: [] },
      ...ARTIFACT_KINDS.map((kind) => ({ outcome: 'pass' as const, expired: [kind] })),
      { outcome: 'fail', expired: [] },
      { outcome: 'erased', expired: [] },
    ];
  }
  const expired = result.ends.flatMap(({ kind, expiresAt }) =>
    expiresAt <= scope.verifierCheckedAt ? [kind] : [],
  );
  return candidates(result, scope).map((verdicts) => {
    const inForce = verdicts.at(-1);
    const stored = inForce?.outcome ?? 'fail';
    const isRefuted = stored === 'pass' && result.verifies === false && !result.isVoided;
    const outcome = isRefuted ? 'fail' : stored;
    return { outcome, expired: [...(inForce?.expired ?? []), ...expired] };
  });
}

/** The admissible statuses of an artifact. */
function admissibleStatuses(
  kind: ArtifactKind,
  { effect, isOutcome }: Decided,
  found: readonly Admissible[],
  revoked: readonly ArtifactKind[],
): Set<VerificationStatus> {
  const statusWith = ({ outcome: verdict, expired }: Admissible): VerificationStatus =>
    verificationStatus({ kind, effect, isOutcome, verdict, revoked, expired });
  const statuses = new Set(found.map(statusWith));
  // A published revocation stays even while the proof does not verify.
  if (statusWith({ outcome: 'pass', expired: [] }) === 'REVOKED') statuses.add('REVOKED');
  return statuses;
}
