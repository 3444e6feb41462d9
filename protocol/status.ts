/** Everything a lookup can say (spec section 3). */
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

/** Artifacts of one proof, in the order in which trust is built on them. */
export const ARTIFACT_KINDS = ['proof', 'passport', 'certificate', 'trust'] as const;
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number];

export const EFFECTS = ['ADMIT', 'DENY'] as const;
export type Effect = (typeof EFFECTS)[number];

const ASSERTING: ReadonlySet<string> = new Set<VerificationStatus>([
  'PASS',
  'VALID',
  'VERIFIED',
  'TRUST_ESTABLISHED',
]);

/**
 * The one place where validity is asserted (spec section 1, item 3). It looks at the status and at
 * nothing else; a string it does not know asserts nothing.
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
 * What the verification system found of a leaf. `erased`: its payload was taken away on purpose, so
 * that nothing can be verified any more but its entry in the log; no check failed.
 */
export type Outcome = 'pass' | 'fail' | 'erased';

/** What a proof records, as far as it decides which artifacts there are. */
export interface Decided {
  effect: Effect;
  /** The proof records how an action ended, and not the admission of one. */
  isOutcome: boolean;
}

/** Whether the proof is all there is: only the admission of an action has a passport, certificate and trust. */
export function isProofOnly({ effect, isOutcome }: Decided): boolean {
  return effect !== 'ADMIT' || isOutcome;
}

/** Whether a public answer is of an outcome: it has a proof that was admitted, and no certificate. */
export function isOutcomeAnswer(
  artifact: { effect?: unknown },
  references: Readonly<Record<string, unknown>>,
): boolean {
  const { proof_id, certificate_id } = references;
  return artifact.effect === 'ADMIT' && proof_id !== undefined && certificate_id === undefined;
}

export interface StatusFacts extends Decided {
  /** Which artifact is asked for; trust assets and packages are `trust`. */
  kind: ArtifactKind;
  /** What the verifier found for the proof; `none` while it has not looked. */
  verdict: Outcome | 'none';
  /** Whether the log has a compromise of the key that voids the proof, whatever the verdict is. */
  isVoided?: boolean;
  /** Artifacts revoked at or below the log size that is being spoken for. */
  revoked: readonly ArtifactKind[];
  /** Artifacts whose validity the verifier has recorded as over. */
  expired: readonly ArtifactKind[];
}

/**
 * The public status of an artifact; the first rule that matches wins.
 *
 * 1. A check failed or nobody has checked, or the artifact does not exist because the proof is of a
 *    denial or an outcome: nothing is asserted.
 * 2. Revoked: no later pass undoes it, nor does a compromise of the signing key.
 * 3. Erased or voided: nothing is asserted.
 * 4. Validity over.
 * 5. The positive status of the artifact's kind.
 *
 * Each artifact rests on those before it, so a revocation or expiry holds for everything after it
 * in the order proof, passport, certificate, trust.
 */
export function verificationStatus(facts: StatusFacts): VerificationStatus {
  const exists = facts.kind === 'proof' || !isProofOnly(facts);
  const { verdict, isVoided = false } = facts;
  const isKnown = verdict === 'fail' ? isVoided : verdict !== 'none';
  if (!isKnown || !exists) return 'BACKEND_LOOKUP_REQUIRED';
  if (restsOnAny(facts.kind, facts.revoked)) return 'REVOKED';
  if (verdict !== 'pass' || isVoided) return 'BACKEND_LOOKUP_REQUIRED';
  if (restsOnAny(facts.kind, facts.expired)) return 'EXPIRED';
  return POSITIVE[facts.kind];
}

function restsOnAny(kind: ArtifactKind, ended: readonly ArtifactKind[]): boolean {
  const position = ARTIFACT_KINDS.indexOf(kind);
  return ended.some((artifact) => ARTIFACT_KINDS.indexOf(artifact) <= position);
}

/**
 * The public status of a package, from the statuses of its members' trust artifacts, of which there
 * is at least one. A package asserts only what every one of them does.
 *
 * 1. One is revoked: so is the package, whatever becomes of the others, since nothing undoes it.
 * 2. One asserts nothing, for another reason than its age: nothing is asserted.
 * 3. One is over.
 * 4. All assert: the positive status of trust.
 */
export function packageStatus(members: readonly VerificationStatus[]): VerificationStatus {
  if (members.includes('REVOKED')) return 'REVOKED';
  const unknown = (status: VerificationStatus): boolean =>
    status !== 'EXPIRED' && !canAssertValidity(status);
  if (members.length === 0 || members.some(unknown)) return 'BACKEND_LOOKUP_REQUIRED';
  return members.includes('EXPIRED') ? 'EXPIRED' : POSITIVE.trust;
}

/** The whole chain in its documented order (spec 2.1). */
export const TRUST_CHAIN_SEQUENCE = [
  'execution',
  'evidence',
  'verification',
  'passport',
  'certificate',
  'trust_established',
] as const;

/** The chain of an admitted action, and that of a denial or an outcome, which has only a proof. */
export const TRUST_CHAIN = {
  FULL: { available: true, sequence: TRUST_CHAIN_SEQUENCE },
  PROOF_ONLY: { available: false, sequence: TRUST_CHAIN_SEQUENCE.slice(0, 3) },
} as const;

export function trustChainOf(decided: Decided) {
  return isProofOnly(decided) ? TRUST_CHAIN.PROOF_ONLY : TRUST_CHAIN.FULL;
}

/** The chain of a lookup that did not resolve. */
export const NO_TRUST_CHAIN = { available: false, sequence: [] } as const;
