import type { ListedShareToken } from '#protocol/schemas/lifecycle';
import { toHex } from '#protocol/bytes';
import { formatTime } from '#protocol/time';
import type { ShareTarget, ShareToken } from '#sql/share-tokens';

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
