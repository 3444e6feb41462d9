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
import { type KeyedEntry, keyStateAt } from '#protocol/keys';
import { type Aep, aepSchema, type ProofRecord } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { VerdictKey } from '#protocol/schemas/verdict';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { readProof, type StoredProof } from '#sql/proofs/read';
import type { Pool } from '#sql/db/transaction';
import { isProofId } from '#protocol/ids';
import { Problem } from '../http/problem.js';

/** 404 for another tenant's proof exactly as for one that does not exist. */
export async function findProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof> {
  const stored = isProofId(proofId) ? await readProof(sql, tenantNo, proofId) : null;
  if (stored === null) throw new Problem('proof_not_found');
  return stored;
}

export interface ProofDocuments {
  entry: ProofEntry;
  /** Null after erasure: only the commitments in the log remain. */
  payload: { aep: Aep; record: ProofRecord; receipt: Receipt } | null;
}

/**
 * Derives a proof's documents and checks them against the hashes in the log, so that altered rows
 * are never served as signed.
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
    // A missing payload without a recorded erasure is a loss, not an erasure.
    if (!stored.isErased) throw altered(stored, 'the missing payload');
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

export function isRowOf(stored: StoredProof, { subject, ...aep }: Aep): boolean {
  return (
    stored.tenantId === aep.tenant_id &&
    stored.effect === aep.decision.effect &&
    stored.isOutcome === (subject.kind === 'outcome') &&
    stored.environment === aep.environment &&
    stored.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2) &&
    stored.keyId === aep.key_id &&
    (stored.isErased ||
      (stored.requestHash !== null && toHex(stored.requestHash) === aep.request_hash)) &&
    formatTime(stored.acceptedAt) === aep.accepted_at
  );
}

/** The stored rows differ from the log. The cause, for the operator, names what differs. */
export function altered(stored: StoredProof, what: string, cause?: Error): Problem {
  const fault = `proof ${stored.proofId} at leaf ${stored.leafIndex}: ${what} does not match the log`;
  return new Problem(
    'integrity_failure',
    'The stored proof differs from the commitments in the log, so it is not served. Contact the operator.',
    { cause: new Error(fault, { cause }) },
  );
}

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
