import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { pointerStep } from '../json.js';
import { lookupNameOf, PACKAGE_KIND, SHARED, type VerdictRoute } from '../lookup-routes.js';
import type { TextOrBytes } from '../offline/read.js';
import type { Facade, NotFound } from '../schemas/facade.js';
import {
  awaitsVerdict,
  NOT_FOUND_BODY,
  packageAnswer,
  proofAnswer,
  unresolvedBody,
  type Match,
} from '../state/answers.js';
import { shardOf } from '../state/record.js';
import type { RecordedProof } from '../state/views.js';
import type { VerificationStatus } from '../status.js';
import { parseTime } from '../time.js';
import type { VerifyCrypto } from '../verify.js';
import { proveState, type EvidenceOptions, type ProvedState } from './verify.js';

/** An answer recomputed from evidence, as of the snapshot's time: see {@link proveAnswer}. */
export interface ProvedAnswer {
  response: Facade | NotFound;
  /** The proof of the artifact; null when the lookup does not resolve to a proof. */
  proof: RecordedProof | null;
}

/**
 * Verifies evidence, and recomputes the answer that it proves.
 *
 * @throws ProtocolError of `proveState`; `evidence_expired` or `evidence_too_old` for an answer that
 *   needs newer evidence
 */
export function proveAnswer(
  crypto: VerifyCrypto,
  evidence: TextOrBytes | object,
  route: VerdictRoute,
  options: EvidenceOptions,
): { state: ProvedState; answer: ProvedAnswer } {
  const state = proveState(crypto, evidence, options);
  const answer = answerFromEvidence(crypto.sha256, state, route);
  requireCurrent(state, answer, answer.response);
  return { state, answer };
}

/**
 * Requires that the evidence of an answer is recent enough for a document about this answer. Evidence of any
 * age proves a revocation, because revocations are irreversible. A document that also asserts validity, of a
 * stage of a trust chain or a member of a package, needs recent evidence.
 *
 * @throws ProtocolError `evidence_expired` or `evidence_too_old`
 */
export function requireCurrent(
  { outdated, snapshot }: ProvedState,
  { response }: ProvedAnswer,
  document: unknown,
): void {
  const status = answerStatus(response);
  if (outdated === null || (status === 'REVOKED' && !assertsValidity(document))) return;
  const message = `the evidence of ${snapshot.time} is too old by the clock of this reader: the answer was ${status}`;
  throw new ProtocolError(outdated, message);
}

const assertsValidity = (document: unknown): boolean =>
  typeof document === 'object' &&
  document !== null &&
  Object.entries(document).some(([name, value]) =>
    name === 'can_assert_validity' ? value === true : assertsValidity(value),
  );

/** The answer that the public API gives on a route about the identifier in the evidence. */
export function answerFromEvidence(
  sha256: Sha256,
  state: ProvedState,
  route: VerdictRoute,
): ProvedAnswer {
  const { identifier: requested, found } = state;
  const match = matchOf(state, route);
  const proofs = recordedProofs(state);
  const [first] = proofs;
  // A package does not resolve before all of its members do.
  const isFound = first !== undefined && proofs.length === found.proofs.size;
  if (match !== null && isFound && (!route.windowed || proofs.some(({ isRecent }) => isRecent))) {
    const text = found.package
      ? packageAnswer(sha256, match, found.package.package_id, proofs)
      : proofAnswer(match, first);
    if (text !== null) {
      return { response: JSON.parse(text) as Facade, proof: found.package ? null : first };
    }
  }
  const unresolved =
    route.unmatched === 'not-found' ? NOT_FOUND_BODY : unresolvedBody(route.unmatched, requested);
  return { response: JSON.parse(unresolved) as Facade | NotFound, proof: null };
}

/** The artifact that the identifier names on the route; null when the route does not match the identifier. */
function matchOf({ identifier, found }: ProvedState, route: VerdictRoute): Match | null {
  const matchedOn = lookupNameOf(identifier);
  const kind = matchedOn && route.matches[matchedOn];
  if (!matchedOn || !kind) return null;
  const match = { requested: identifier, matchedOn };
  if (kind !== SHARED) return { ...match, kind };
  if (!found.share) return null;
  const { artifact_kind: shared } = found.share;
  return { ...match, kind: shared === 'package' ? PACKAGE_KIND : shared };
}

/**
 * The proofs that resolve, and whether each is recent: a generic lookup resolves only recent proofs.
 */
function recordedProofs({
  found,
  snapshot,
}: ProvedState): (RecordedProof & { isRecent: boolean })[] {
  return [...found.proofs].flatMap(([proofId, one]) => {
    const log = snapshot.logs.find(({ shard }) => shard === shardOf(proofId));
    if (one === null || awaitsVerdict(one) || log === undefined) return [];
    const { origin, size, lookup_from } = log;
    const view = { origin, size, expiredThrough: parseTime(log.expired_through) };
    return [{ ...one, proofId, log: view, isRecent: one.proof.leafIndex >= lookup_from }];
  });
}

export function answerStatus(answer: Facade | NotFound): VerificationStatus {
  return 'verification' in answer
    ? answer.verification.verification_status
    : answer.verification_status;
}

/**
 * Requires that a served document has every member of the recomputed document. A later version of the
 * service may add members. `downloads` are addresses, which prove nothing.
 *
 * @throws ProtocolError `answer_mismatch`, with a pointer
 */
export function requireAgreement(proved: unknown, served: unknown, pointer = ''): void {
  if (typeof proved !== 'object' || proved === null) {
    if (proved !== served) throw mismatch(pointer);
    return;
  }
  if (typeof served !== 'object' || served === null) throw mismatch(pointer);
  // Arrays must have the same length.
  const isArray = Array.isArray(proved);
  if (isArray !== Array.isArray(served)) throw mismatch(pointer);
  if (isArray && proved.length !== (served as unknown[]).length) throw mismatch(pointer);
  for (const [name, value] of Object.entries(proved)) {
    if (name === 'downloads') continue;
    requireAgreement(value, (served as Record<string, unknown>)[name], pointer + pointerStep(name));
  }
}

const mismatch = (pointer: string): ProtocolError =>
  new ProtocolError(
    'answer_mismatch',
    `the answer differs from its evidence at ${pointer || '/'}`,
    {
      pointer,
    },
  );
