import { toBase64 } from './bytes.js';
import { canonicalBytes } from './canonical-json.js';
import { documentHash, hashHex, type Sha256 } from './hash.js';
import { ID_PREFIX } from './ids.js';
import type { Aep, AepSubject, FullValidity } from './schemas/aep.js';
import type { ExecuteReceipt } from './schemas/execute.js';
import { SCHEMA } from './schemas/ids.js';
import { AEP_PAYLOAD_TYPE, type DsseEnvelope, type ProofRecord } from './schemas/proof-record.js';
import type { Environment } from './schemas/primitives.js';
import type { Effect } from './status.js';

export { AEP_PAYLOAD_TYPE } from './schemas/proof-record.js';

/** Everything an AEP says; hashes and salt in lower-case hex, times as `formatTime` writes them. */
export interface AepInput {
  proof_id: string;
  environment: Environment;
  tenant_id: string;
  subject: AepSubject;
  request_hash: string;
  /** Reasons in any order. */
  decision: { effect: Effect; reasons: readonly string[] };
  policy: { digest: string; input_hash: string; engine_version: string };
  evidence: { fixture_ref: string | null; fixture_hash: string | null };
  /** The tenant's settings applied to `accepted_at`; of a denial only the end of the proof is used. */
  valid_until: FullValidity;
  accepted_at: string;
  /** 32 bytes */
  salt: string;
  key_id: string;
}

/** An AEP is a pure function of its input: equal inputs give equal bytes. */
export function buildAep(input: AepInput): Aep {
  const { proof, certificate, passport, trust } = input.valid_until;
  return {
    schema_version: SCHEMA.aep,
    execution_id: ID_PREFIX.execution_id + input.proof_id,
    proof_id: input.proof_id,
    environment: input.environment,
    tenant_id: input.tenant_id,
    subject: input.subject,
    request_hash: input.request_hash,
    decision: {
      effect: input.decision.effect,
      // A policy engine lists its reasons in no particular order, so they are sorted, each once.
      reasons: [...new Set(input.decision.reasons)].sort(),
    },
    policy: {
      digest: input.policy.digest,
      input_hash: input.policy.input_hash,
      engine: 'cedar',
      engine_version: input.policy.engine_version,
    },
    evidence: {
      fixture_ref: input.evidence.fixture_ref,
      fixture_hash: input.evidence.fixture_hash,
    },
    valid_until:
      input.decision.effect === 'ADMIT' ? { proof, certificate, passport, trust } : { proof },
    accepted_at: input.accepted_at,
    salt: input.salt,
    key_id: input.key_id,
  };
}

/** The bytes that are hashed into `aep_hash` and signed. */
export function aepBytes(aep: Aep): Uint8Array {
  return canonicalBytes(aep);
}

/**
 * The answer to an execution. It follows from three facts, so that a repeated request gets the
 * first answer byte for byte although no answer is stored.
 */
export function buildReceipt(
  sha256: Sha256,
  facts: { proof_id: string; request_hash: string; effect: Effect },
): ExecuteReceipt {
  const unhashed = {
    schema_version: SCHEMA.executeReceipt,
    receipt_id: `svc-runtime-execute-${facts.request_hash.slice(0, 16)}`,
    status: facts.effect === 'ADMIT' ? 'ADMITTED' : 'DENIED',
    request_hash: facts.request_hash,
    registry_proof_id: facts.proof_id,
    vee_recorded: true,
  } as const;
  return { ...unhashed, response_hash: documentHash(sha256, unhashed) };
}

/** The receipt as it goes over the wire: its RFC 8785 form. */
export function receiptBytes(receipt: ExecuteReceipt): Uint8Array {
  return canonicalBytes(receipt);
}

/** The DSSE envelope of an AEP's bytes; `signature` is over their pre-authentication encoding. */
export function buildEnvelope(
  payload: Uint8Array,
  signature: Uint8Array,
  keyId: string,
): DsseEnvelope {
  return {
    payloadType: AEP_PAYLOAD_TYPE,
    payload: toBase64(payload),
    signatures: [{ keyid: keyId, sig: toBase64(signature) }],
  };
}

export interface ProofRecordInput {
  proof_id: string;
  /** The AEP's canonical bytes. */
  aep: Uint8Array;
  /** 64 bytes */
  signature: Uint8Array;
  key_id: string;
  request_hash: string;
  effect: Effect;
}

export function buildProofRecord(sha256: Sha256, input: ProofRecordInput): ProofRecord {
  return {
    schema_version: SCHEMA.proofRecord,
    proof_id: input.proof_id,
    aep_hash: hashHex(sha256, input.aep),
    envelope: buildEnvelope(input.aep, input.signature, input.key_id),
    request_hash: input.request_hash,
    response_hash: buildReceipt(sha256, input).response_hash,
  };
}

/** The hash that the log entry commits to. */
export function proofRecordHash(sha256: Sha256, record: ProofRecord): string {
  return documentHash(sha256, record);
}
