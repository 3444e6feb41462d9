import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { forEach } from './pace.js';
import type { Single } from './records.js';

/** The public status that must follow from a committed request. */
export interface ExpectedStatus {
  /** The path below `/api/public/verify/`. */
  path: string;
  /** Null for an id that must not resolve. */
  status: string | null;
}

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

/** The public status that an artifact must have after the requests about its admission. */
export function expectedOf({ revoked, isErased, ends }: Single, kind: ArtifactKind): string {
  const chain = ARTIFACT_KINDS.slice(0, ARTIFACT_KINDS.indexOf(kind) + 1);
  if (chain.some((one) => revoked.has(one))) return 'REVOKED';
  if (isErased) return 'BACKEND_LOOKUP_REQUIRED';
  return ends && kind !== 'proof' ? 'EXPIRED' : POSITIVE[kind];
}

/** The public status that a package of admissions must have. */
export function expectedOfAll(members: readonly Single[]): string {
  const statuses = members.map((member) => expectedOf(member, 'trust'));
  return WORST_FIRST.find((one) => statuses.includes(one)) ?? POSITIVE.trust;
}

interface Answer {
  lookup?: { matched_on: string | null };
  verification?: { verification_status: string; can_assert_validity: boolean };
}

export async function differingStatuses(
  publicUrl: string,
  expected: readonly ExpectedStatus[],
): Promise<(ExpectedStatus & { problem: string })[]> {
  const found: (ExpectedStatus & { problem: string })[] = [];
  await forEach(expected, async (one) => {
    const status = await statusAt(publicUrl, one.path).catch(String);
    if (status === String(one.status)) return;
    const problem = `the public status of ${one.path} is ${status}, not ${String(one.status)}`;
    found.push({ ...one, problem });
  });
  return found;
}

/** A public status: `null` for an id that does not resolve, or a description of an invalid answer. */
async function statusAt(publicUrl: string, path: string): Promise<string> {
  const response = await fetch(`${publicUrl}/api/public/verify/${path}`);
  const { lookup, verification } = (await response.json()) as Answer;
  if (response.status === 404 || lookup?.matched_on === null) return 'null';
  if (response.status !== 200 || verification === undefined) return String(response.status);
  const { verification_status: status, can_assert_validity: asserts } = verification;
  const mustAssert = Object.values(POSITIVE).includes(status);
  return asserts === mustAssert ? status : `${status} with can_assert_validity ${String(asserts)}`;
}
