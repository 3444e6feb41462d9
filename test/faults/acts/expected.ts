import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import type { Single } from '../memory.js';

const POSITIVE: Record<ArtifactKind, string> = {
  proof: 'VALID',
  passport: 'PASS',
  certificate: 'VERIFIED',
  trust: 'TRUST_ESTABLISHED',
};

const WORST_FIRST = ['REVOKED', 'BACKEND_LOOKUP_REQUIRED', 'EXPIRED'];

const PATHS: Record<ArtifactKind, string> = {
  proof: 'proof/',
  passport: 'passport/pass_',
  certificate: 'certificate/cert_',
  trust: 'trust/trust_',
};

export const pathOf = (single: Single, kind: ArtifactKind): string =>
  PATHS[kind] + (single.proofId ?? '');

/** The public status that an artifact must have, by the requests about its admission. */
export function expectedOf({ revoked, isErased, ends }: Single, kind: ArtifactKind): string {
  const under = ARTIFACT_KINDS.slice(0, ARTIFACT_KINDS.indexOf(kind) + 1);
  if (under.some((one) => revoked.has(one))) return 'REVOKED';
  if (isErased) return 'BACKEND_LOOKUP_REQUIRED';
  return ends && kind !== 'proof' ? 'EXPIRED' : POSITIVE[kind];
}

/** The same of a package of admissions. */
export function expectedOfAll(members: readonly Single[]): string {
  const statuses = members.map((member) => expectedOf(member, 'trust'));
  const worst = WORST_FIRST.find((one) => statuses.includes(one));
  return worst ?? POSITIVE.trust;
}
