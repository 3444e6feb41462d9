import { fromHex, fromUtf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { hashHex } from '#protocol/hash';
import { idsOf } from '#protocol/ids';
import type { Facade } from '#protocol/schemas/facade';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { encodeRecord, recordBody } from '#protocol/snapshot/record';
import {
  canAssertValidity,
  NO_TRUST_CHAIN,
  packageStatus,
  TRUST_CHAIN,
  type ArtifactKind,
  type VerificationStatus,
} from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';

/** A package member, from the published record of its proof. */
export interface PackageMember {
  proofId: string;
  /** Status of the member's trust artifact; BACKEND_LOOKUP_REQUIRED without one. */
  status: VerificationStatus;
  /** RFC 3339; null if the record has no time. */
  verifiedAt: string | null;
  hasTrustChain: boolean;
  environment: 'sandbox' | 'live';
  /** Number of proofs before this one in the log. */
  proofNumber: number;
}

const LEVEL = 'PACKAGE_BACKED_PUBLIC_PROJECTION';

/** Index key of a package: its id without the prefix, 16 bytes in hex. */
export function packageIndexId(packageId: string): string {
  return packageId.slice('pkg_'.length);
}

export function membersHash(proofIds: readonly string[]): string {
  return hashHex(nativeSha256, canonicalBytes([...proofIds]));
}

/** @param record the published record of the proof */
export function memberOf(record: Uint8Array, proofId: string, proofNumber: number): PackageMember {
  const proof = bodyOf(record, proofId, 'proof');
  const trust = bodyOf(record, proofId, 'trust');
  if (proof === null) throw new Error(`the record of ${proofId} contains no proof`);
  return {
    proofId,
    status: trust?.verification.verification_status ?? 'BACKEND_LOOKUP_REQUIRED',
    verifiedAt: proof.verification.verified_at ?? null,
    hasTrustChain: trust?.trust_chain.available ?? false,
    environment: (proof.artifact as { environment: 'sandbox' | 'live' }).environment,
    proofNumber,
  };
}

/**
 * The record of a package, as a lookup response of kind `trust`. It depends only on the members (at
 * least one), so the same members give the same bytes.
 */
export function renderPackage(
  logOrigin: string,
  packageId: string,
  members: readonly PackageMember[],
): Uint8Array {
  const status = packageStatus(members.map((member) => member.status));
  const verifiedAt = members.reduce((latest, member) => laterOf(latest, member.verifiedAt), '');
  const verification = {
    verification_status: status,
    can_assert_validity: canAssertValidity(status),
    frontend_recomputed: false,
    ...(verifiedAt === '' ? {} : { verified_at: verifiedAt }),
  };
  const artifact = {
    package_id: packageId,
    members: members.length,
    effect: 'ADMIT',
    // Members share their tenant's environment. If they ever differ, the weaker claim applies.
    environment: members.every(({ environment }) => environment === 'live') ? 'live' : 'sandbox',
  };
  const common = {
    trust_chain: members.every(({ hasTrustChain }) => hasTrustChain)
      ? TRUST_CHAIN.FULL
      : NO_TRUST_CHAIN,
    ...PUBLIC_FLAGS,
    references: { package_id: packageId, members: members.map(referenceOf) },
    downloads: { checkpoint: '/log/checkpoint', keys: '/api/public/keys' },
    integrity: {
      members_hash: membersHash(members.map(({ proofId }) => proofId)),
      log_origin: logOrigin,
    },
  };
  return encodeRecord({
    id: packageIndexId(packageId),
    parts: {
      trust: `"verification":${JSON.stringify(verification)},"artifact":{"artifact_level":"${LEVEL}",`,
    },
    tail: `${JSON.stringify(artifact).slice(1)},${JSON.stringify(common).slice(1)}`,
  });
}

/** A record that resolves to nothing, for a package that cannot be trusted. */
export function unresolvedPackage(packageId: string): Uint8Array {
  return encodeRecord({ id: packageIndexId(packageId), parts: {}, tail: '{}' });
}

/** Ordered members and status of a published package; null for an unresolvable one. */
export function publishedPackage(
  record: Uint8Array,
  packageId: string,
): { proofIds: string[]; status: VerificationStatus } | null {
  const body = bodyOf(record, packageIndexId(packageId), 'trust');
  if (body === null) return null;
  const { members } = body.references as { members: { proof_id: string }[] };
  return {
    proofIds: members.map((member) => member.proof_id),
    status: body.verification.verification_status,
  };
}

function referenceOf({ proofId, status }: PackageMember): {
  proof_id: string;
  trust_id: string;
  verification_status: VerificationStatus;
  can_assert_validity: boolean;
} {
  return {
    proof_id: proofId,
    trust_id: idsOf(proofId).trust_id,
    verification_status: status,
    can_assert_validity: canAssertValidity(status),
  };
}

/** The later of two RFC 3339 times of equal precision, or ''. */
function laterOf(a: string, b: string | null): string {
  return b !== null && b > a ? b : a;
}

function bodyOf(record: Uint8Array, id: string, kind: ArtifactKind): Facade | null {
  const body = recordBody(record, fromHex(id), kind);
  return body && (JSON.parse(`{${fromUtf8(body.part)}${fromUtf8(body.tail)}`) as Facade);
}
