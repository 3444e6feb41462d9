import { toBase64, utf8 } from './bytes.js';
import { canonicalize, orderedBytes } from './canonical-json.js';
import { ProtocolError } from './errors.js';
import { asciiHashHex, hashHex, type Sha256 } from './hash.js';
import { ID_PREFIX, PROOF_ID_PATTERN } from './ids.js';
import {
  type Aep,
  AEP_PAYLOAD_TYPE,
  type AepSubject,
  type DsseEnvelope,
  type FullValidity,
  type ProofRecord,
} from './schemas/aep.js';
import type { AgentReceipt } from './schemas/agent.js';
import type { ExecuteReceipt } from './schemas/execute.js';
import { SCHEMA } from './schemas/ids.js';
import { BYTES32_BASE64URL_PATTERN, type Environment, HASH_PATTERN } from './schemas/primitives.js';
import { type Decided, type Effect, isProofOnly } from './status.js';

export { AEP_PAYLOAD_TYPE } from './schemas/aep.js';

/** Content of an AEP. Hashes and the salt are lower-case hex, times as `formatTime` writes them. */
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
  /**
   * The tenant's validity settings applied to `accepted_at`; a denial or an outcome uses only the
   * end of the proof.
   */
  valid_until: FullValidity;
  accepted_at: string;
  /** 32 bytes */
  salt: string;
  key_id: string;
}

export function decidedIn({ decision, subject }: Pick<AepInput, 'decision' | 'subject'>): Decided {
  return { effect: decision.effect, isOutcome: subject.kind === 'outcome' };
}

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
      // The order of the policy engine's reasons varies.
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
    valid_until: isProofOnly(decidedIn(input))
      ? { proof }
      : { proof, certificate, passport, trust },
    accepted_at: input.accepted_at,
    salt: input.salt,
    key_id: input.key_id,
  };
}

/** The bytes that are signed and hashed into `aep_hash`: the AEP's RFC 8785 form. */
export function aepBytes(aep: Aep): Uint8Array {
  return utf8(aepText(aep));
}

/**
 * {@link aepBytes} as text. An AEP has one of three shapes, so this prints it member by member,
 * four times faster than `canonicalize`; a test compares the two.
 */
export function aepText(aep: Aep): string {
  const { decision, evidence, policy, valid_until: ends } = aep;
  const proof = `"proof":${quoted(ends.proof)}`;
  const validUntil =
    'trust' in ends
      ? `"certificate":${quoted(ends.certificate)},"passport":${quoted(ends.passport)},${proof},"trust":${quoted(ends.trust)}`
      : proof;
  const text =
    `{"accepted_at":${quoted(aep.accepted_at)},` +
    `"decision":{"effect":"${decision.effect}","reasons":[${decision.reasons.map(quoted).join(',')}]},` +
    `"environment":"${aep.environment}",` +
    `"evidence":{"fixture_hash":${quoted(evidence.fixture_hash)},"fixture_ref":${quoted(evidence.fixture_ref)}},` +
    `"execution_id":${quoted(aep.execution_id)},"key_id":${quoted(aep.key_id)},` +
    `"policy":{"digest":${quoted(policy.digest)},"engine":"${policy.engine}",` +
    `"engine_version":${quoted(policy.engine_version)},"input_hash":${quoted(policy.input_hash)}},` +
    `"proof_id":${quoted(aep.proof_id)},"request_hash":${quoted(aep.request_hash)},` +
    `"salt":${quoted(aep.salt)},"schema_version":"${aep.schema_version}",` +
    `"subject":${subjectText(aep.subject)},"tenant_id":${quoted(aep.tenant_id)},` +
    `"valid_until":{${validUntil}}}`;
  // `JSON.stringify` escapes a lone surrogate; `canonicalize` rejects it.
  return text.includes('\\ud') ? canonicalize(aep) : text;
}

const quoted = (value: string | null): string => JSON.stringify(value);

const leading = (name: string, value: string | undefined): string =>
  value === undefined ? '' : `"${name}":${quoted(value)},`;

const trailing = (name: string, value: string | undefined): string =>
  value === undefined ? '' : `,"${name}":${quoted(value)}`;

function subjectText(subject: AepSubject): string {
  switch (subject.kind) {
    case 'execute':
      return `{"action":${quoted(subject.action)},"intent_id":${quoted(subject.intent_id)},"kind":"execute"}`;
    case 'admission': {
      const { action, agent, arguments_hash, parent_proof_id, tool } = subject;
      return (
        `{"action":${quoted(action)},` +
        `"agent":{${leading('framework', agent.framework)}"id":${quoted(agent.id)}},` +
        `${leading('arguments_hash', arguments_hash)}"kind":"admission"` +
        `${trailing('parent_proof_id', parent_proof_id)}${trailing('tool', tool)}}`
      );
    }
    case 'outcome':
      return (
        `{"kind":"outcome","parent_proof_id":${quoted(subject.parent_proof_id)},` +
        `"result":"${subject.result}"${trailing('result_hash', subject.result_hash)}}`
      );
  }
}

export type RequestType = 'execute' | 'agent';

export type Receipt = ExecuteReceipt | AgentReceipt;

export function requestTypeOf(subject: AepSubject): RequestType {
  return subject.kind === 'execute' ? 'execute' : 'agent';
}

export interface ReceiptFacts {
  lane: RequestType;
  proof_id: string;
  request_hash: string;
  effect: Effect;
}

/**
 * The response to an admission. It depends on four facts only, so a repeated request gets the same
 * bytes although no response is stored.
 */
export function buildReceipt(
  sha256: Sha256,
  facts: ReceiptFacts & { lane: 'execute' },
): ExecuteReceipt;
export function buildReceipt(sha256: Sha256, facts: ReceiptFacts): Receipt;
export function buildReceipt(sha256: Sha256, facts: ReceiptFacts): Receipt {
  const start = facts.request_hash.slice(0, 16);
  const own =
    facts.lane === 'execute'
      ? {
          schema_version: SCHEMA.executeReceipt,
          receipt_id: `svc-runtime-execute-${start}` as const,
        }
      : {
          schema_version: SCHEMA.agentReceipt,
          receipt_id: `svc-agent-admission-${start}` as const,
        };
  const status = facts.effect === 'ADMIT' ? 'ADMITTED' : 'DENIED';
  // In canonical order, and without its own hash.
  const unhashed = {
    receipt_id: own.receipt_id,
    registry_proof_id: facts.proof_id,
    request_hash: facts.request_hash,
    schema_version: own.schema_version,
    status,
    vee_recorded: true,
  } as const;
  return {
    ...own,
    status,
    request_hash: facts.request_hash,
    registry_proof_id: facts.proof_id,
    response_hash: hashHex(sha256, orderedBytes(unhashed)),
    vee_recorded: true,
  };
}

export function receiptBytes(receipt: Receipt): Uint8Array {
  return orderedBytes(orderedReceipt(receipt));
}

/** With its members in canonical order, as `orderedBytes` requires. */
export function orderedReceipt(receipt: Receipt) {
  return {
    receipt_id: receipt.receipt_id,
    registry_proof_id: receipt.registry_proof_id,
    request_hash: receipt.request_hash,
    response_hash: receipt.response_hash,
    schema_version: receipt.schema_version,
    status: receipt.status,
    vee_recorded: receipt.vee_recorded,
  };
}

/** The DSSE envelope of an AEP's bytes; `signature` covers their pre-authentication encoding. */
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

export interface ProofRecordInput extends ReceiptFacts {
  aep: Uint8Array;
  /** 64 bytes */
  signature: Uint8Array;
  key_id: string;
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

export function proofRecordHash(sha256: Sha256, record: ProofRecord): string {
  return hashHex(sha256, proofRecordBytes(record));
}

export function proofRecordBytes(record: ProofRecord): Uint8Array {
  const { payload, payloadType, signatures } = record.envelope;
  const [{ keyid, sig }] = signatures;
  return orderedBytes({
    aep_hash: record.aep_hash,
    envelope: { payload, payloadType, signatures: [{ keyid, sig }] },
    proof_id: record.proof_id,
    request_hash: record.request_hash,
    response_hash: record.response_hash,
    schema_version: record.schema_version,
  });
}

/** The hashes in the log entry of a proof. */
export interface Commitments {
  aep_hash: string;
  proof_record_hash: string;
}

/** `toBase64`, or a faster one of the platform. */
export type Base64 = (bytes: Uint8Array) => string;

/**
 * The two hashes in the log entry of a proof, from texts that are assembled directly, several times
 * faster than `buildProofRecord` and `proofRecordHash`; a test compares the two. `malformed_entry`
 * unless the proof id, the request hash and the key id have their form: another text could change
 * the structure of what is hashed.
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
    throw new ProtocolError('malformed_entry', 'a field of the proof record is malformed');
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
