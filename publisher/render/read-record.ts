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
import type { ProofFacts } from './proof-facts.js';
import { statusOf, type Judgement } from './record.js';

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
 * The facts back out of a record that was published. A proof is judged anew from what the public
 * has already seen of it, so that a row that was tampered with since can change no fact, and can
 * not keep its failed verdict from being published either.
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

/** The artifacts that a published record says are revoked. */
export function revokedIn(record: Uint8Array, proofId: string): ArtifactKind[] {
  return RECORD_KINDS.filter((kind) => publishedStatus(record, proofId, kind) === 'REVOKED');
}

/**
 * What a published record tells of what became of the proof. One without a history says it in its
 * body: if everything in it is asserted, when the proof was verified.
 */
export function eventsIn(record: Uint8Array, proofId: string): PublicEvent[] {
  const history = recordHistory(record, fromHex(proofId));
  if (history !== null) return JSON.parse(fromUtf8(history)) as PublicEvent[];
  const found = RECORD_KINDS.flatMap((kind) => verificationIn(record, proofId, kind) ?? []);
  const isAsserted = found.every((one) => canAssertValidity(one.verification_status));
  const { integrity } = renderedProof(record, proofId);
  return impliedEvents(integrity, isAsserted ? found[0]?.verified_at : undefined);
}

/**
 * Whether a record already says what the judgement comes to, and tells all its events. When the
 * proof was last verified is no reason to say it again.
 */
export function saysAlready(record: Uint8Array, facts: ProofFacts, judgement: Judgement): boolean {
  const { events } = judgement;
  if (events !== undefined && !areSameEvents(events, eventsIn(record, facts.proofId))) return false;
  return RECORD_KINDS.every((kind) => {
    const status = publishedStatus(record, facts.proofId, kind);
    const exists = kind === 'proof' || !isProofOnly(facts);
    if (status === null || !exists) return status === null && !exists;
    return status === statusOf(kind, facts, judgement);
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
