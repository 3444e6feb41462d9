import {
  buildProofRecord,
  buildReceipt,
  laneOf,
  proofRecordHash,
  type Receipt,
  type ReceiptFacts,
} from '#protocol/aep';
import { toHex } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { aepSchema, type Aep } from '#protocol/schemas/aep';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofRecord } from '#protocol/schemas/proof-record';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto';
import type { StoredProof } from '#sql/proofs';
import { Problem } from '../http/problem.js';

/** The documents of one proof, derived again from what is stored. */
export interface ProofDocuments {
  receipt: Receipt;
  entry: ProofEntry;
  /** Null when the payload has been erased: what the log commits to remains. */
  payload: { aep: Aep; record: ProofRecord } | null;
}

/**
 * Derives a proof's documents and holds them against the hashes that the log commits to. What was
 * altered in the database is never served as if it had been signed.
 */
export function documentsOf(stored: StoredProof): ProofDocuments {
  if (!stored.isLogged) throw altered(stored, 'the log entry');
  const facts: ReceiptFacts = {
    lane: stored.lane === 1 ? 'execute' : 'agent',
    proof_id: stored.proofId,
    request_hash: toHex(stored.requestHash),
    effect: stored.effect,
  };
  return {
    receipt: buildReceipt(nativeSha256, facts),
    entry: {
      schema_version: SCHEMA.logEntry,
      type: 'proof',
      proof_id: stored.proofId,
      aep_hash: toHex(stored.aepHash),
      proof_record_hash: toHex(stored.proofRecordHash),
      time: formatTime(stored.acceptedAt),
    },
    payload: payloadOf(stored, facts),
  };
}

function payloadOf(stored: StoredProof, facts: ReceiptFacts): ProofDocuments['payload'] {
  const { aep, signature, keyId } = stored;
  if (aep === null || signature === null) return null;
  if (hashHex(nativeSha256, aep) !== toHex(stored.aepHash)) throw altered(stored, 'aep_hash');
  const record = buildProofRecord(nativeSha256, { ...facts, aep, signature, key_id: keyId });
  if (proofRecordHash(nativeSha256, record) !== toHex(stored.proofRecordHash)) {
    throw altered(stored, 'proof_record_hash');
  }
  const document = aepSchema.parse(parseStrict(aep));
  if (!isRowOf(stored, document)) throw altered(stored, 'a column');
  return { aep: document, record };
}

/** Whether the columns that are shown, or that statements are made from, are what the AEP says. */
export function isRowOf(stored: StoredProof, { subject, ...said }: Aep): boolean {
  return (
    stored.tenantId === said.tenant_id &&
    stored.effect === said.decision.effect &&
    stored.environment === said.environment &&
    stored.lane === (laneOf(subject) === 'execute' ? 1 : 2) &&
    stored.keyId === said.key_id &&
    toHex(stored.requestHash) === said.request_hash &&
    formatTime(stored.acceptedAt) === said.accepted_at
  );
}

/** What is stored is not what the log commits to; the cause says for the operator what differs. */
export function altered(stored: StoredProof, what: string, cause?: Error): Problem {
  const { proofId, leafIndex } = stored;
  return new Problem(
    'integrity_failure',
    'What is stored for this proof is not what the log commits to. It is not served.',
    { cause: new Error(`proof ${proofId} at leaf ${leafIndex}: ${what} does not fit`, { cause }) },
  );
}
