import {
  AEP_PAYLOAD_TYPE,
  buildProofRecord,
  proofRecordHash,
  type ProofRecordInput,
} from './aep.js';
import { toBase64 } from './bytes.js';
import { asciiHashHex, hashHex, type Sha256 } from './hash.js';
import { PROOF_ID_PATTERN } from './ids.js';
import { BYTES32_BASE64URL_PATTERN, HASH_PATTERN } from './schemas/primitives.js';
import { SCHEMA } from './schemas/ids.js';

/** The hashes in the log entry of a proof. */
export interface Commitments {
  aep_hash: string;
  proof_record_hash: string;
}

/** `toBase64`, or a faster one of the platform. */
export type Base64 = (bytes: Uint8Array) => string;

/**
 * The two hashes in the log entry of a proof. When every field is plain ASCII, as in every valid
 * proof, the hashed texts are assembled directly. `buildProofRecord` and `proofRecordHash` define
 * them; a test compares the results.
 */
export function proofCommitments(
  sha256: Sha256,
  input: ProofRecordInput,
  base64: Base64 = toBase64,
): Commitments {
  const { aep, signature, proof_id, request_hash, key_id } = input;
  const plain =
    PROOF_ID_PATTERN.test(proof_id) &&
    HASH_PATTERN.test(request_hash) &&
    BYTES32_BASE64URL_PATTERN.test(key_id);
  if (!plain) {
    const record = buildProofRecord(sha256, input);
    return { aep_hash: record.aep_hash, proof_record_hash: proofRecordHash(sha256, record) };
  }
  const aep_hash = hashHex(sha256, aep);
  const record =
    `{"aep_hash":"${aep_hash}","envelope":{"payload":"${base64(aep)}",` +
    `"payloadType":"${AEP_PAYLOAD_TYPE}",` +
    `"signatures":[{"keyid":"${key_id}","sig":"${base64(signature)}"}]},` +
    `"proof_id":"${proof_id}","request_hash":"${request_hash}",` +
    `"response_hash":"${responseHash(sha256, input)}","schema_version":"${SCHEMA.proofRecord}"}`;
  return { aep_hash, proof_record_hash: asciiHashHex(sha256, record) };
}

/** The response hash that `buildReceipt` computes. */
function responseHash(
  sha256: Sha256,
  { lane, effect, proof_id, request_hash }: ProofRecordInput,
): string {
  const [kind, schema] =
    lane === 'execute'
      ? ['svc-runtime-execute', SCHEMA.executeReceipt]
      : ['svc-agent-admission', SCHEMA.agentReceipt];
  return asciiHashHex(
    sha256,
    `{"receipt_id":"${kind}-${request_hash.slice(0, 16)}","registry_proof_id":"${proof_id}",` +
      `"request_hash":"${request_hash}","schema_version":"${schema}",` +
      `"status":"${effect === 'ADMIT' ? 'ADMITTED' : 'DENIED'}","vee_recorded":true}`,
  );
}
