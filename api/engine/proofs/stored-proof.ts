import {
  buildProofRecord,
  buildReceipt,
  requestTypeOf,
  proofRecordHash,
  type Receipt,
  type ReceiptFacts,
} from '#protocol/aep';
import { toHex } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { type KeyedEntry, keyStateAt } from '#protocol/key-state';
import { type Aep, aepSchema } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { ProofRecord } from '#protocol/schemas/proof-record';
import type { VerdictKey } from '#protocol/schemas/verdict';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import type { StoredProof } from '#sql/proofs/read';
import { Problem } from '../http/problem.js';

/** The documents of one proof, derived again from what is stored. */
export interface ProofDocuments {
  entry: ProofEntry;
  /** Null when the payload has been erased: what the log commits to remains. */
  payload: { aep: Aep; record: ProofRecord; receipt: Receipt } | null;
}

/**
 * Derives a proof's documents and holds them against the hashes that the log commits to. What was
 * altered in the database is never served as if it had been signed.
 */
export function documentsOf(stored: StoredProof): ProofDocuments {
  if (!stored.isLogged) throw altered(stored, 'the log entry');
  return {
    entry: {
      schema_version: SCHEMA.logEntry,
      type: 'proof',
      proof_id: stored.proofId,
      aep_hash: toHex(stored.aepHash),
      proof_record_hash: toHex(stored.proofRecordHash),
      time: formatTime(stored.acceptedAt),
    },
    payload: payloadOf(stored),
  };
}

function payloadOf(stored: StoredProof): ProofDocuments['payload'] {
  const { aep, signature, keyId, requestHash } = stored;
  if (aep === null || signature === null || requestHash === null) {
    // Gone without a record it is lost, and nobody is told that it was meant to be.
    if (!stored.isErased) throw altered(stored, 'the payload, which is missing,');
    return null;
  }
  const facts: ReceiptFacts = {
    lane: stored.lane === 1 ? 'execute' : 'agent',
    proof_id: stored.proofId,
    request_hash: toHex(requestHash),
    effect: stored.effect,
  };
  if (hashHex(nativeSha256, aep) !== toHex(stored.aepHash)) throw altered(stored, 'aep_hash');
  const record = buildProofRecord(nativeSha256, { ...facts, aep, signature, key_id: keyId });
  if (proofRecordHash(nativeSha256, record) !== toHex(stored.proofRecordHash)) {
    throw altered(stored, 'proof_record_hash');
  }
  const document = aepSchema.parse(parseStrict(aep));
  if (!isRowOf(stored, document)) throw altered(stored, 'a column');
  return { aep: document, record, receipt: buildReceipt(nativeSha256, facts) };
}

/** Whether the columns that are shown, or that statements are made from, are what the AEP says. */
export function isRowOf(stored: StoredProof, { subject, ...said }: Aep): boolean {
  return (
    stored.tenantId === said.tenant_id &&
    stored.effect === said.decision.effect &&
    stored.isOutcome === (subject.kind === 'outcome') &&
    stored.environment === said.environment &&
    stored.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2) &&
    stored.keyId === said.key_id &&
    (stored.isErased || hexOf(stored.requestHash) === said.request_hash) &&
    formatTime(stored.acceptedAt) === said.accepted_at
  );
}

function hexOf(hash: Uint8Array | null): string | null {
  return hash === null ? null : toHex(hash);
}

/** What needs the payload, and cannot be had any more. */
export function erased(): Problem {
  return new Problem('payload_erased', 'Only the commitments of this proof are left, in the log.');
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

/** What the log says of a key for a signature at `leafIndex`, and where it says so. */
export function keyOf(
  entries: readonly KeyedEntry[],
  keyId: string,
  leafIndex: number,
  logSize: number,
): VerdictKey {
  const changes = entries.flatMap(({ leafIndex: at, entry }) =>
    entry.type === 'key' && entry.key_id === keyId ? [{ at, entry }] : [],
  );
  const first = (change: 'activate' | 'retire') =>
    changes.find(({ entry }) => entry.change === change)?.at ?? null;
  const compromised = changes.flatMap(({ entry }) => entry.from_index ?? []);
  return {
    key_id: keyId,
    source: 'log',
    state: keyStateAt(entries, keyId, leafIndex, logSize).state,
    activated_at_index: first('activate'),
    retired_at_index: first('retire'),
    compromised_from_index: compromised.length === 0 ? null : Math.min(...compromised),
  };
}
