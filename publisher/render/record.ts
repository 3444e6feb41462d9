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

/** Verdict, revocations and history of a proof. */
export interface CurrentStatus {
  verdict: Pick<VerdictInHistory, 'outcome' | 'expired' | 'verifiedAt'> | undefined;
  revoked: readonly ArtifactKind[];
  /** Revocations that were published: they are final, even while the proof fails. */
  publishedRevoked?: readonly ArtifactKind[];
  /** Status history; absent when the proof was verified once and nothing else happened. */
  events?: readonly PublicEvent[];
}

const LEVELS: Record<ArtifactKind, string> = {
  proof: 'PROOF_BACKED_PUBLIC_PROJECTION',
  certificate: 'CERTIFICATE_BACKED_PUBLIC_PROJECTION',
  passport: 'PASSPORT_BACKED_PUBLIC_PROJECTION',
  trust: 'TRUST_BACKED_PUBLIC_PROJECTION',
};

/**
 * The record of a proof: the response bodies of its artifacts and, where needed, its status history.
 * Members that differ by kind (verification, artifact level) come first, so the tail is stored once.
 */
export function renderRecord(facts: ProofFacts, current: CurrentStatus): Uint8Array {
  const verified = verifiedText(current.verdict?.verifiedAt);
  const part = (kind: ArtifactKind): string => {
    const status = statusOf(kind, facts, current);
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
  const verifies = current.verdict?.outcome === 'pass';
  const texts = { id: facts.proofId, parts, tail: tailOf(facts, verifies) };
  const { events } = current;
  return encodeRecord(
    events === undefined ? texts : { ...texts, history: canonicalize([...events]) },
  );
}

/** Cached, because thousands of proofs share a verification time. */
let latest = { verifiedAt: Number.NaN, text: '' };

function verifiedText(verifiedAt: number | undefined): string {
  if (verifiedAt === undefined) return '';
  if (verifiedAt !== latest.verifiedAt) {
    latest = { verifiedAt, text: `,"verified_at":"${formatTime(verifiedAt)}"` };
  }
  return latest.text;
}

/** The status of one artifact. A published revocation wins over the registry. */
export function statusOf(
  kind: ArtifactKind,
  { effect, isOutcome }: Decided,
  current: CurrentStatus,
): VerificationStatus {
  const { verdict, revoked, publishedRevoked = [] } = current;
  if (publishedRevoked.includes(kind)) return 'REVOKED';
  return verificationStatus({
    kind,
    effect,
    isOutcome,
    verdict: verdict?.outcome ?? 'none',
    revoked,
    expired: verdict?.expired ?? [],
  });
}
