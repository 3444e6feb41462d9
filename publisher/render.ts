import { idsOf } from '#protocol/ids';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { encodeRecord, RECORD_KINDS, recordBody } from '#protocol/snapshot/record';
import {
  canAssertValidity,
  NO_TRUST_CHAIN,
  TRUST_CHAIN,
  verificationStatus,
  type ArtifactKind,
  type Effect,
  type VerificationStatus,
} from '#protocol/status';
import { entriesPath, TILE_WIDTH, tilePath, tileWidth } from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import { fromHex, fromUtf8 } from '#protocol/bytes';
import type { LeafVerdict, ProofLeaf } from './registry-view.js';

/** What stands fixed about a proof once it is in the log, and where its leaf was first published. */
export interface ProofFacts extends Omit<ProofLeaf, 'kind'> {
  logOrigin: string;
  /** How many leaves the tile of the leaf had when the proof was first published. */
  tileWidth: number;
}

/** What the verification system and the log say of it now. */
export interface Judgement {
  verdict: LeafVerdict | undefined;
  revoked: readonly ArtifactKind[];
  /** What the public has been told is revoked: for ever, also while the proof does not verify. */
  toldRevoked?: readonly ArtifactKind[];
}

export function factsOfLeaf(leaf: ProofLeaf, logOrigin: string, treeSize: number): ProofFacts {
  const width = tileWidth(0, Math.floor(leaf.leafIndex / TILE_WIDTH), treeSize);
  return { ...leaf, logOrigin, tileWidth: width };
}

const LEVELS: Record<ArtifactKind, string> = {
  proof: 'PROOF_BACKED_PUBLIC_PROJECTION',
  certificate: 'CERTIFICATE_BACKED_PUBLIC_PROJECTION',
  passport: 'PASSPORT_BACKED_PUBLIC_PROJECTION',
  trust: 'TRUST_BACKED_PUBLIC_PROJECTION',
};

/**
 * The record of a proof: the response bodies of all its artifacts. What differs per kind comes
 * first in them, the verification and the level of the artifact, so that the rest is stored once.
 */
export function renderRecord(facts: ProofFacts, judgement: Judgement): Uint8Array {
  const verifiedAt =
    judgement.verdict === undefined
      ? {}
      : { verified_at: formatTime(judgement.verdict.verifiedAt) };
  const part = (kind: ArtifactKind): string => {
    const status = statusOf(kind, facts.effect, judgement);
    const verification = {
      verification_status: status,
      can_assert_validity: canAssertValidity(status),
      frontend_recomputed: false,
      ...verifiedAt,
    };
    return `"verification":${JSON.stringify(verification)},"artifact":{"artifact_level":"${LEVELS[kind]}",`;
  };
  const proof = part('proof');
  // A denial is a proof and nothing more: it has no certificate, passport or trust to resolve to.
  const parts =
    facts.effect === 'DENY'
      ? { proof }
      : {
          proof,
          certificate: part('certificate'),
          passport: part('passport'),
          trust: part('trust'),
        };
  return encodeRecord({ id: facts.proofId, parts, tail: tailOf(facts, judgement) });
}

/** The rest of the artifact, its closing brace, and what all kinds have in common. */
function tailOf(facts: ProofFacts, judgement: Judgement): string {
  const tile = Math.floor(facts.leafIndex / TILE_WIDTH);
  const artifact = {
    execution_id: idsOf(facts.proofId).execution_id,
    aep_hash: facts.aepHash,
    proof_record_hash: facts.proofRecordHash,
    effect: facts.effect,
    environment: facts.environment,
  };
  const common = {
    // Of what did not verify nothing is claimed, a chain least of all.
    trust_chain: judgement.verdict?.outcome === 'pass' ? TRUST_CHAIN[facts.effect] : NO_TRUST_CHAIN,
    ...PUBLIC_FLAGS,
    references: referencesOf(facts.proofId, facts.effect),
    downloads: {
      log_entry: `/log/entry/${facts.leafIndex}`,
      entry_bundle: `/log/${entriesPath(tile, facts.tileWidth)}`,
      tile: `/log/${tilePath(0, tile, facts.tileWidth)}`,
      checkpoint: '/log/checkpoint',
      inclusion_proof: `/log/proof/${facts.leafIndex}`,
      keys: '/api/public/keys',
    },
    integrity: {
      aep_hash: facts.aepHash,
      proof_record_hash: facts.proofRecordHash,
      log_origin: facts.logOrigin,
      leaf_index: facts.leafIndex,
      key_id: facts.keyId,
      accepted_at: formatTime(facts.acceptedAt),
    },
  };
  return `${JSON.stringify(artifact).slice(1)},${JSON.stringify(common).slice(1)}`;
}

/** The ids that lead somewhere: all of them for an admission, the proof's own for a denial. */
function referencesOf(proofId: string, effect: Effect): Record<string, string> {
  const ids = idsOf(proofId);
  if (effect === 'ADMIT') return { ...ids };
  const { proof_id, registry_proof_id, registry_entry_id, execution_id } = ids;
  return { proof_id, registry_proof_id, registry_entry_id, execution_id };
}

function statusOf(kind: ArtifactKind, effect: Effect, judgement: Judgement): VerificationStatus {
  const { verdict, revoked, toldRevoked = [] } = judgement;
  if (toldRevoked.includes(kind)) return 'REVOKED';
  return verificationStatus({
    kind,
    effect,
    verdict: verdict?.outcome ?? 'none',
    revoked,
    expired: verdict?.expired ?? [],
  });
}

interface RenderedProof {
  artifact: { effect: Effect; environment: 'sandbox' | 'live' };
  downloads: { tile: string };
  integrity: {
    aep_hash: string;
    proof_record_hash: string;
    log_origin: string;
    leaf_index: number;
    key_id: string;
    accepted_at: string;
  };
}

/**
 * The facts back out of a record that was published. A proof is judged anew from what the public
 * has already seen of it, so that a row that was tampered with since can change no fact, and can
 * not keep its failed verdict from being published either.
 */
export function factsOfRecord(record: Uint8Array, proofId: string): ProofFacts {
  const rendered = JSON.parse(bodyText(record, proofId, 'proof') ?? '{}') as RenderedProof;
  const { artifact, downloads, integrity } = rendered;
  const partial = /\.p\/([0-9]+)$/.exec(downloads.tile);
  return {
    leafIndex: integrity.leaf_index,
    proofId,
    aepHash: integrity.aep_hash,
    proofRecordHash: integrity.proof_record_hash,
    acceptedAt: parseTime(integrity.accepted_at),
    effect: artifact.effect,
    environment: artifact.environment,
    keyId: integrity.key_id,
    logOrigin: integrity.log_origin,
    tileWidth: partial === null ? TILE_WIDTH : Number(partial[1]),
  };
}

/** The artifacts that a published record says are revoked. */
export function revokedIn(record: Uint8Array, proofId: string): ArtifactKind[] {
  return RECORD_KINDS.filter((kind) => publishedStatus(record, proofId, kind) === 'REVOKED');
}

/** Whether a record already says what the judgement comes to; when it was verified is no reason. */
export function saysAlready(record: Uint8Array, facts: ProofFacts, judgement: Judgement): boolean {
  return RECORD_KINDS.every((kind) => {
    const status = publishedStatus(record, facts.proofId, kind);
    if (status === null) return facts.effect === 'DENY' && kind !== 'proof';
    return status === statusOf(kind, facts.effect, judgement);
  });
}

function publishedStatus(record: Uint8Array, proofId: string, kind: ArtifactKind): string | null {
  const body = bodyText(record, proofId, kind);
  if (body === null) return null;
  const { verification } = JSON.parse(body) as { verification: { verification_status: string } };
  return verification.verification_status;
}

function bodyText(record: Uint8Array, proofId: string, kind: ArtifactKind): string | null {
  const body = recordBody(record, fromHex(proofId), kind);
  return body && `{${fromUtf8(body.part)}${fromUtf8(body.tail)}`;
}
