import type { Response } from 'express';
import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ListedShareToken } from '#protocol/schemas/lifecycle';
import type { ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { TrustPackage } from '#sql/lifecycle/packages';
import type {
  RevocationRefusal,
  RevocationSettlement,
  StandingRevocation,
} from '#sql/lifecycle/revocations';
import type { ShareTarget, ShareToken } from '#sql/lifecycle/share-tokens';
import { Problem, type ProblemCode } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';

export function packageMembers({ packageId, proofIds, createdAt }: TrustPackage) {
  return { package_id: packageId, proof_ids: proofIds, created_at: formatTime(createdAt) };
}

export function targetMembers(target: ShareTarget) {
  return target.artifactKind === 'package'
    ? { artifact_kind: target.artifactKind, package_id: target.packageId }
    : { artifact_kind: target.artifactKind, proof_id: target.proofId };
}

export const timeOrNull = (time: number | null): string | null =>
  time === null ? null : formatTime(time);

export function listedShareToken(token: ShareToken): ListedShareToken {
  return {
    token_hash: toHex(token.tokenHash),
    ...targetMembers(token.target),
    created_at: formatTime(token.createdAt),
    expires_at: timeOrNull(token.expiresAt),
    revoked_at: timeOrNull(token.revokedAt),
  };
}

export interface RevokedArtifact {
  proofId: string;
  artifactKind: ArtifactKind;
}

/** Problems of both revocation operations. */
export const REVOCATION_PROBLEMS: readonly ProblemCode[] = [
  'api_key_revoked',
  'revocation_failed',
  'integrity_failure',
];

export const revocationPath = ({ proofId, artifactKind }: RevokedArtifact): string =>
  `/v1/proofs/${proofId}/revocations/${artifactKind}`;

/** The logged revocation. Throws if the request was rejected. */
export function loggedRevocation(settlement: RevocationSettlement): StandingRevocation {
  if (settlement.state === 'refused') throw rejection(settlement.code);
  return settlement;
}

export function sendRevocation(
  res: Response,
  status: 200 | 201,
  { leafIndex, entry }: StandingRevocation,
): void {
  const body = canonicalBytes({
    schema_version: SCHEMA.revocation,
    proof_id: entry.proof_id,
    artifact_kind: entry.artifact_kind,
    status: entry.status,
    reason_hash: entry.reason_hash,
    leaf_index: leafIndex,
    time: entry.time,
  });
  sendJson(res, status, body);
}

export function sendPendingRevocation(res: Response, artifact: RevokedArtifact): void {
  res.setHeader('Location', revocationPath(artifact));
  res.setHeader('Retry-After', '1');
  const body = canonicalBytes({
    schema_version: SCHEMA.revocationStatus,
    proof_id: artifact.proofId,
    artifact_kind: artifact.artifactKind,
    state: 'pending',
  });
  sendJson(res, 202, body);
}

function rejection(code: RevocationRefusal): Problem {
  switch (code) {
    case 'api_key_revoked':
      return new Problem(
        code,
        'The API key was revoked before the revocation was logged. Nothing was revoked. Send the request with another key.',
      );
    case 'processing_failed':
      return new Problem(
        'revocation_failed',
        'The engine could not process the revocation and quarantined it. Nothing was revoked. Contact the operator.',
      );
  }
}
