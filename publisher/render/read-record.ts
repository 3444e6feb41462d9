import { fromHex, fromUtf8 } from '#protocol/bytes';
import { areSameEvents, impliedEvents } from '#protocol/history';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { RECORD_KINDS, recordBody, recordHistory } from '#protocol/snapshot/record';
import {
  canAssertValidity,
  isOutcomeAnswer,
  isProofOnly,
  type ArtifactKind,
  type Effect,
} from '#protocol/status';
import { TILE_WIDTH } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import { type ProofFacts, statusOf, type CurrentStatus } from './record.js';

interface RenderedProof {
  artifact: { effect: Effect; environment: 'sandbox' | 'live' };
  references: { proof_id?: string; certificate_id?: string };
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
 * Reads the facts from a published record. A changed status is rendered with published facts, so a row
 * that was tampered with can neither change a fact nor block its own failed verdict.
 */
export function factsOfRecord(record: Uint8Array, proofId: string): ProofFacts {
  const { artifact, downloads, integrity, references } = renderedProof(record, proofId);
  const partial = /\.p\/([0-9]+)$/.exec(downloads.tile);
  return {
    leafIndex: integrity.leaf_index,
    proofId,
    aepHash: integrity.aep_hash,
    proofRecordHash: integrity.proof_record_hash,
    acceptedAt: parseTime(integrity.accepted_at),
    effect: artifact.effect,
    isOutcome: isOutcomeAnswer(artifact, references),
    environment: artifact.environment,
    keyId: integrity.key_id,
    logOrigin: integrity.log_origin,
    tileWidth: partial === null ? TILE_WIDTH : Number(partial[1]),
  };
}

function renderedProof(record: Uint8Array, proofId: string): RenderedProof {
  return JSON.parse(bodyText(record, proofId, 'proof') ?? '{}') as RenderedProof;
}

/** Revoked artifacts of a published record. */
export function revokedIn(record: Uint8Array, proofId: string): ArtifactKind[] {
  return RECORD_KINDS.filter((kind) => publishedStatus(record, proofId, kind) === 'REVOKED');
}

/**
 * Status history of a published record. A record without one was verified once, at `verified_at`, if
 * all its artifacts are valid.
 */
export function eventsIn(record: Uint8Array, proofId: string): PublicEvent[] {
  const history = recordHistory(record, fromHex(proofId));
  if (history !== null) return JSON.parse(fromUtf8(history)) as PublicEvent[];
  const found = RECORD_KINDS.flatMap((kind) => verificationIn(record, proofId, kind) ?? []);
  const areAllValid = found.every((one) => canAssertValidity(one.verification_status));
  const { integrity } = renderedProof(record, proofId);
  return impliedEvents(integrity, areAllValid ? found[0]?.verified_at : undefined);
}

/**
 * Whether a published record already has this status and every event. A later verification time alone
 * does not change a record.
 */
export function isUnchanged(
  record: Uint8Array,
  facts: ProofFacts,
  current: CurrentStatus,
): boolean {
  const { events } = current;
  if (events !== undefined && !areSameEvents(events, eventsIn(record, facts.proofId))) return false;
  return RECORD_KINDS.every((kind) => {
    const status = publishedStatus(record, facts.proofId, kind);
    const exists = kind === 'proof' || !isProofOnly(facts);
    if (status === null || !exists) return status === null && !exists;
    return status === statusOf(kind, facts, current);
  });
}

interface RenderedVerification {
  verification_status: string;
  verified_at?: string;
}

function publishedStatus(record: Uint8Array, proofId: string, kind: ArtifactKind): string | null {
  return verificationIn(record, proofId, kind)?.verification_status ?? null;
}

function verificationIn(
  record: Uint8Array,
  proofId: string,
  kind: ArtifactKind,
): RenderedVerification | null {
  const body = bodyText(record, proofId, kind);
  if (body === null) return null;
  return (JSON.parse(body) as { verification: RenderedVerification }).verification;
}

function bodyText(record: Uint8Array, proofId: string, kind: ArtifactKind): string | null {
  const body = recordBody(record, fromHex(proofId), kind);
  return body && `{${fromUtf8(body.part)}${fromUtf8(body.tail)}`;
}
