export const STATUSES = [
  'VERIFIED',
  'VALID',
  'NOT_FOUND',
  'REVOKED',
  'EXPIRED',
  'BACKEND_LOOKUP_REQUIRED',
  'PASS',
  'TRUST_ESTABLISHED',
] as const;
export type VerificationStatus = (typeof STATUSES)[number];

export const ARTIFACT_KINDS = ['proof', 'passport', 'certificate', 'trust'] as const;
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number];

/** The nouns for the kinds of artifacts, in pages and API documents. */
export const ARTIFACT_NOUNS = {
  proof: 'proof',
  certificate: 'certificate',
  passport: 'passport',
  trust: 'trust artifact',
} as const satisfies Record<ArtifactKind, string>;

/** Effects in the order of their numbers in the map. Only `ADMIT` permits the action. */
export const EFFECTS = ['ADMIT', 'DENY', 'REQUIRE_APPROVAL'] as const;
export type Effect = (typeof EFFECTS)[number];

const ASSERTING: ReadonlySet<string> = new Set<VerificationStatus>([
  'PASS',
  'VALID',
  'VERIFIED',
  'TRUST_ESTABLISHED',
]);

/**
 * The only place that asserts validity (spec section 1, item 3). The result depends on the status
 * only; an unknown string asserts nothing.
 */
export function canAssertValidity(status: string): boolean {
  return ASSERTING.has(status);
}

const POSITIVE = {
  proof: 'VALID',
  certificate: 'VERIFIED',
  passport: 'PASS',
  trust: 'TRUST_ESTABLISHED',
} as const satisfies Record<ArtifactKind, VerificationStatus>;

/**
 * The verifier's result for a leaf. `erased`: the payload was erased on purpose, so only the log
 * entry remains verifiable; no check failed.
 */
export type Outcome = 'pass' | 'fail' | 'erased';

/** The facts of a proof that determine which artifacts it has. */
export interface Decided {
  effect: Effect;
  /** Whether the proof records an outcome of an action or a close of a run, not an admission. */
  isOutcome: boolean;
}

/**
 * Whether the proof has no further artifacts: only an admitted action has a passport, certificate
 * and trust.
 */
export function isProofOnly({ effect, isOutcome }: Decided): boolean {
  return effect !== 'ADMIT' || isOutcome;
}

/**
 * Whether a public response is about an outcome or the close of a run: it has a proof with the effect
 * ADMIT and no certificate. The log does not show whether it is an outcome or a close.
 */
export function isReportAnswer(
  artifact: { effect?: unknown },
  references: Readonly<Record<string, unknown>>,
): boolean {
  const { proof_id, certificate_id } = references;
  return artifact.effect === 'ADMIT' && proof_id !== undefined && certificate_id === undefined;
}

export interface StatusFacts extends Decided {
  kind: ArtifactKind;
  /** The verifier's result for the proof; `none` before the first verification. */
  verdict: Outcome | 'none';
  /**
   * Whether the log has a compromise of the signing key that voids the proof, whatever the verdict.
   */
  isVoided?: boolean;
  /** Artifacts revoked below the log size of the statement. */
  revoked: readonly ArtifactKind[];
  expired: readonly ArtifactKind[];
}

/**
 * The public status of an artifact; the first matching rule wins.
 *
 * 1. A check failed, the proof is unverified, or the artifact does not exist because the proof is not
 *    the admission of an action: no statement.
 * 2. Revoked: neither a later pass nor a compromise of the signing key undoes a revocation.
 * 3. Erased or voided: no statement.
 * 4. Expired.
 * 5. The positive status of the artifact's kind.
 *
 * Each artifact depends on those before it in the order proof, passport, certificate, trust, so a
 * revocation or expiry applies to every later artifact.
 */
export function verificationStatus(facts: StatusFacts): VerificationStatus {
  const exists = facts.kind === 'proof' || !isProofOnly(facts);
  const { verdict, isVoided = false } = facts;
  const isKnown = verdict === 'fail' ? isVoided : verdict !== 'none';
  if (!isKnown || !exists) return 'BACKEND_LOOKUP_REQUIRED';
  if (dependsOnAny(facts.kind, facts.revoked)) return 'REVOKED';
  if (verdict !== 'pass' || isVoided) return 'BACKEND_LOOKUP_REQUIRED';
  if (dependsOnAny(facts.kind, facts.expired)) return 'EXPIRED';
  return POSITIVE[facts.kind];
}

function dependsOnAny(kind: ArtifactKind, ended: readonly ArtifactKind[]): boolean {
  const position = ARTIFACT_KINDS.indexOf(kind);
  return ended.some((artifact) => ARTIFACT_KINDS.indexOf(artifact) <= position);
}

/**
 * The public status of a package, from the statuses of its members' trust artifacts. A package
 * asserts only what every member asserts.
 *
 * 1. A member is revoked: the package is revoked permanently.
 * 2. A member asserts nothing for another reason than expiry, or the package is empty: no
 *    statement.
 * 3. A member is expired: expired.
 * 4. All members assert: the positive status of trust.
 */
export function packageStatus(members: readonly VerificationStatus[]): VerificationStatus {
  if (members.includes('REVOKED')) return 'REVOKED';
  const unknown = (status: VerificationStatus): boolean =>
    status !== 'EXPIRED' && !canAssertValidity(status);
  if (members.length === 0 || members.some(unknown)) return 'BACKEND_LOOKUP_REQUIRED';
  return members.includes('EXPIRED') ? 'EXPIRED' : POSITIVE.trust;
}

export const TRUST_CHAIN_SEQUENCE = [
  'execution',
  'evidence',
  'verification',
  'passport',
  'certificate',
  'trust_established',
] as const;

/** The trust chain of the admission of an action, and the trust chain of every other proof. */
export const TRUST_CHAIN = {
  FULL: { available: true, sequence: TRUST_CHAIN_SEQUENCE },
  PROOF_ONLY: { available: false, sequence: TRUST_CHAIN_SEQUENCE.slice(0, 3) },
} as const;

export function trustChainOf(decided: Decided) {
  return isProofOnly(decided) ? TRUST_CHAIN.PROOF_ONLY : TRUST_CHAIN.FULL;
}

export const NO_TRUST_CHAIN = { available: false, sequence: [] } as const;
