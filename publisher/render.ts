import { canonicalize } from '#protocol/canonical-json';
import type { VerdictInHistory } from '#protocol/history';
import { idsOf } from '#protocol/ids';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { encodeRecord } from '#protocol/snapshot/record';
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
import { formatTime } from '#protocol/time';
import type { ProofLeaf } from './registry-view.js';

/** What stands fixed about a proof once it is in the log, and where its leaf was first published. */
export interface ProofFacts extends Omit<ProofLeaf, 'kind'> {
  logOrigin: string;
  /** How many leaves the tile of the leaf had when the proof was first published. */
  tileWidth: number;
}

/** What the verification system and the log say of it now. */
export interface Judgement {
  verdict: Pick<VerdictInHistory, 'outcome' | 'expired' | 'verifiedAt'> | undefined;
  revoked: readonly ArtifactKind[];
  /** What the public has been told is revoked: for ever, also while the proof does not verify. */
  toldRevoked?: readonly ArtifactKind[];
  /** All that became of it; absent when that is no more than that it was verified, once. */
  events?: readonly PublicEvent[];
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
 * The record of a proof: the response bodies of all its artifacts, and what became of it where they
 * do not say that. What differs per kind comes first in the bodies, the verification and the level
 * of the artifact, so that the rest is stored once.
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
  const texts = { id: facts.proofId, parts, tail: tailOf(facts, judgement) };
  const { events } = judgement;
  return encodeRecord(
    events === undefined ? texts : { ...texts, history: canonicalize([...events]) },
  );
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

/** The status of one artifact, whatever a registry says of what was told to be revoked. */
export function statusOf(
  kind: ArtifactKind,
  effect: Effect,
  judgement: Judgement,
): VerificationStatus {
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
