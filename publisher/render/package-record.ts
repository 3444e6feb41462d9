import { fromHex, fromUtf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex, type Sha256 } from '#protocol/hash';
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

/** What the published record of a proof says of it as a member of a package. */
export interface PackageMember {
  proofId: string;
  /** Of its trust artifact: a proof that has none asserts nothing. */
  status: VerificationStatus;
  /** RFC 3339; null in a record that does not say. */
  verifiedAt: string | null;
  hasTrustChain: boolean;
  environment: 'sandbox' | 'live';
  /** How many proofs precede it in the log. */
  proofNumber: number;
}

const LEVEL = 'PACKAGE_BACKED_PUBLIC_PROJECTION';

/** Without its prefix, 16 bytes in hex: what a package is indexed by. */
export function packageIndexId(packageId: string): string {
  return packageId.slice('pkg_'.length);
}

export function packageIdOf(indexId: string): string {
  return `pkg_${indexId}`;
}

export function membersHash(sha256: Sha256, proofIds: readonly string[]): string {
  return hashHex(sha256, canonicalBytes([...proofIds]));
}

/** @param record the published record of the proof */
export function memberOf(record: Uint8Array, proofId: string, proofNumber: number): PackageMember {
  const proof = bodyOf(record, proofId, 'proof');
  const trust = bodyOf(record, proofId, 'trust');
  if (proof === null) throw new Error(`the record of ${proofId} has no proof in it`);
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
 * The record of a package: what its facade says, of kind `trust`. It follows from the members alone,
 * of which there is at least one, so the same members give the same bytes.
 */
export function renderPackage(
  sha256: Sha256,
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
    // A tenant has one environment. Should that ever not hold, the lesser claim does.
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
      members_hash: membersHash(
        sha256,
        members.map(({ proofId }) => proofId),
      ),
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

/** A record that resolves to nothing, for a package that is not to be believed. */
export function unresolvedPackage(packageId: string): Uint8Array {
  return encodeRecord({ id: packageIndexId(packageId), parts: {}, tail: '{}' });
}

/** The members of a published package, in its order, and its status; null of one that does not resolve. */
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

/** Of two times of section 4's one form, or ''. */
function laterOf(a: string, b: string | null): string {
  return b !== null && b > a ? b : a;
}

function bodyOf(record: Uint8Array, id: string, kind: ArtifactKind): Facade | null {
  const body = recordBody(record, fromHex(id), kind);
  return body && (JSON.parse(`{${fromUtf8(body.part)}${fromUtf8(body.tail)}`) as Facade);
}
