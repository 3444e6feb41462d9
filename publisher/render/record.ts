import { canonicalize } from '#protocol/canonical-json';
import type { VerdictInHistory } from '#protocol/history';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { encodeRecord } from '#protocol/snapshot/record';
import {
  canAssertValidity,
  isProofOnly,
  verificationStatus,
  type ArtifactKind,
  type Decided,
  type VerificationStatus,
} from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { ProofFacts } from './proof-facts.js';
import { tailOf } from './tail.js';

/** What the verification system and the log say of it now. */
export interface Judgement {
  verdict: Pick<VerdictInHistory, 'outcome' | 'expired' | 'verifiedAt'> | undefined;
  revoked: readonly ArtifactKind[];
  /** What the public has been told is revoked: for ever, also while the proof does not verify. */
  toldRevoked?: readonly ArtifactKind[];
  /** All that became of it; absent when that is no more than that it was verified, once. */
  events?: readonly PublicEvent[];
}

const LEVELS: Record<ArtifactKind, string> = {
  proof: 'PROOF_BACKED_PUBLIC_PROJECTION',
  certificate: 'CERTIFICATE_BACKED_PUBLIC_PROJECTION',
  passport: 'PASSPORT_BACKED_PUBLIC_PROJECTION',
  trust: 'TRUST_BACKED_PUBLIC_PROJECTION',
};

/**
 * The record of a proof: the response bodies of all its artifacts, and what became of it where they
 * do not say that. What differs per kind comes first in the bodies, the verification and the level
 * of the artifact, so that the rest is stored once.
 */
export function renderRecord(facts: ProofFacts, judgement: Judgement): Uint8Array {
  const verified = verifiedText(judgement.verdict?.verifiedAt);
  const part = (kind: ArtifactKind): string => {
    const status = statusOf(kind, facts, judgement);
    return (
      `"verification":{"verification_status":"${status}",` +
      `"can_assert_validity":${canAssertValidity(status)},"frontend_recomputed":false${verified}},` +
      `"artifact":{"artifact_level":"${LEVELS[kind]}",`
    );
  };
  const proof = part('proof');
  const parts = isProofOnly(facts)
    ? { proof }
    : {
        proof,
        certificate: part('certificate'),
        passport: part('passport'),
        trust: part('trust'),
      };
  const holds = judgement.verdict?.outcome === 'pass';
  const texts = { id: facts.proofId, parts, tail: tailOf(facts, holds) };
  const { events } = judgement;
  return encodeRecord(
    events === undefined ? texts : { ...texts, history: canonicalize([...events]) },
  );
}

/** Thousands of proofs are verified in one go. */
let latest = { verifiedAt: Number.NaN, text: '' };

function verifiedText(verifiedAt: number | undefined): string {
  if (verifiedAt === undefined) return '';
  if (verifiedAt !== latest.verifiedAt) {
    latest = { verifiedAt, text: `,"verified_at":"${formatTime(verifiedAt)}"` };
  }
  return latest.text;
}

/** The status of one artifact, whatever a registry says of what was told to be revoked. */
export function statusOf(
  kind: ArtifactKind,
  { effect, isOutcome }: Decided,
  judgement: Judgement,
): VerificationStatus {
  const { verdict, revoked, toldRevoked = [] } = judgement;
  if (toldRevoked.includes(kind)) return 'REVOKED';
  return verificationStatus({
    kind,
    effect,
    isOutcome,
    verdict: verdict?.outcome ?? 'none',
    revoked,
    expired: verdict?.expired ?? [],
  });
}
