import { toBase64 } from './bytes.js';
import { canonicalBytes, orderedText } from './json.js';
import { ProtocolError } from './errors.js';
import { documentHash, hashHex, type Sha256 } from './hash.js';
import { ID_PREFIX } from './ids.js';
import {
  type Aep,
  type AepAgent,
  AEP_PAYLOAD_TYPE,
  type AepSubject,
  type ClosedRun,
  type DsseEnvelope,
  type FullValidity,
  isReport,
  type ProofRecord,
} from './schemas/aep.js';
import type {
  AgentEnvelope,
  AgentReceipt,
  ExecuteReceipt,
  ExecuteRequest,
} from './schemas/admission.js';
import { SCHEMA } from './schemas/ids.js';
import type { Run } from './schemas/primitives.js';
import { type Decided, type Effect, isProofOnly } from './status.js';

export { AEP_PAYLOAD_TYPE } from './schemas/aep.js';

/** Hashes and the salt are lower-case hex, times have the form of `formatTime`, and commitments are ascending. */
export interface AepInput extends Omit<
  Aep,
  'schema_version' | 'execution_id' | 'decision' | 'policy' | 'valid_until'
> {
  /** `reasons` may be in any order. */
  decision: { effect: Effect; reasons: readonly string[] };
  policy: Omit<Aep['policy'], 'engine'>;
  /**
   * The tenant's validity settings applied to `accepted_at`. If the proof does not admit an action, only
   * the setting for the proof is used.
   */
  valid_until: FullValidity;
}

export function decidedIn({ decision, subject }: Pick<AepInput, 'decision' | 'subject'>): Decided {
  return { effect: decision.effect, isOutcome: isReport(subject) };
}

/** The AEP with its members in RFC 8785 order, as `orderedText` requires. */
export function buildAep(input: AepInput): Aep {
  const { proof, certificate, passport, trust } = input.valid_until;
  const { approval } = input.evidence;
  return {
    accepted_at: input.accepted_at,
    commitments: input.commitments,
    decision: {
      effect: input.decision.effect,
      // The order of the policy engine's reasons varies.
      reasons: [...new Set(input.decision.reasons)].sort(),
    },
    environment: input.environment,
    evidence: {
      approval: approval && {
        approval_hash: approval.approval_hash,
        pending_proof_id: approval.pending_proof_id,
        registration_hash: approval.registration_hash,
      },
      fixture_hash: input.evidence.fixture_hash,
      fixture_ref: input.evidence.fixture_ref,
    },
    execution_id: ID_PREFIX.execution_id + input.proof_id,
    key_id: input.key_id,
    policy: {
      digest: input.policy.digest,
      engine: 'cedar',
      engine_version: input.policy.engine_version,
      input_hash: input.policy.input_hash,
    },
    proof_id: input.proof_id,
    request_commitment: input.request_commitment,
    salt: input.salt,
    schema_version: SCHEMA.aep,
    subject: orderedSubject(input.subject),
    tenant_id: input.tenant_id,
    valid_until: isProofOnly(decidedIn(input))
      ? { proof }
      : { certificate, passport, proof, trust },
  };
}

const CALL_MEMBERS = ['tool_call_id', 'traceparent'] as const;
/** The members of a subject by its kind, in RFC 8785 order. */
const SUBJECT_MEMBERS = {
  execute: ['action', 'intent_id', 'kind'],
  admission: ['action', 'agent', 'kind', 'parent_proof_id', 'run', 'tool', ...CALL_MEMBERS],
  outcome: ['agent', 'kind', 'parent_proof_id', 'result', 'run', ...CALL_MEMBERS],
  close: ['agent', 'count', 'kind', 'members_hash', 'run', ...CALL_MEMBERS],
} as const;

function orderedSubject(subject: AepSubject): AepSubject {
  const { agent, run } = subject as { agent?: AepAgent; run?: Run };
  const parts = {
    ...subject,
    ...(agent && { agent: picked(agent, ['bound', 'framework', 'id']) }),
    ...(run && { run: picked(run, ['id', 'seq']) }),
  };
  return picked(parts, SUBJECT_MEMBERS[subject.kind]) as AepSubject;
}

function picked(value: object, names: readonly string[]): object {
  const members: Record<string, unknown> = {};
  for (const name of names) {
    const member = (value as Record<string, unknown>)[name];
    if (member !== undefined) members[name] = member;
  }
  return members;
}

/**
 * The AEP's members about the request of an admission.
 *
 * @param bound whether the API key that sent the request is restricted to its agent
 * @param closed number and hash of the other proofs of the run; required for a close
 */
export function subjectOf(
  request: ExecuteRequest | AgentEnvelope,
  bound: boolean,
  closed?: ClosedRun | null,
): AepSubject {
  if (!('kind' in request)) return orderedSubject({ kind: 'execute', ...request });
  const agent = { ...request.agent, bound };
  if (request.kind !== 'close') return orderedSubject({ ...request, agent });
  if (!closed) throw new ProtocolError('malformed_record', 'the run of a close is missing');
  return orderedSubject({ ...request, ...closed, agent });
}

/** The bytes that are signed and hashed into `aep_hash`: the AEP's RFC 8785 form. */
export function aepBytes(aep: Aep): Uint8Array {
  return canonicalBytes(aep);
}

export type RequestType = 'execute' | 'agent';

export type Receipt = ExecuteReceipt | AgentReceipt;

export function requestTypeOf(subject: AepSubject): RequestType {
  return subject.kind === 'execute' ? 'execute' : 'agent';
}

/** The id of the parent proof that the subject names, or null. */
export function parentOf(subject: AepSubject): string | null {
  return 'parent_proof_id' in subject ? (subject.parent_proof_id ?? null) : null;
}

export interface ReceiptFacts {
  lane: RequestType;
  proof_id: string;
  request_hash: string;
  effect: Effect;
}

/**
 * The response to an admission. A response depends only on `ReceiptFacts`, so a repeated request gets the same bytes
 * although no response is stored.
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
  const members = {
    ...own,
    status: RECEIPT_STATUS[facts.effect],
    request_hash: facts.request_hash,
    registry_proof_id: facts.proof_id,
  };
  const vee_recorded = true;
  const response_hash = documentHash(sha256, { ...members, vee_recorded });
  return { ...members, response_hash, vee_recorded };
}

const RECEIPT_STATUS = {
  ADMIT: 'ADMITTED',
  DENY: 'DENIED',
  REQUIRE_APPROVAL: 'APPROVAL_REQUIRED',
} as const satisfies Record<Effect, Receipt['status']>;

/** The DSSE envelope of an AEP's bytes; `signature` covers the pre-authentication encoding of these bytes. */
export function buildEnvelope(
  payload: Uint8Array,
  signature: Uint8Array,
  keyId: string,
  base64: Base64 = toBase64,
): DsseEnvelope {
  return {
    payloadType: AEP_PAYLOAD_TYPE,
    payload: base64(payload),
    signatures: [{ keyid: keyId, sig: base64(signature) }],
  };
}

export interface ProofRecordInput {
  proof_id: string;
  aep: Uint8Array;
  /** 64 bytes */
  signature: Uint8Array;
  key_id: string;
}

export function buildProofRecord(
  sha256: Sha256,
  input: ProofRecordInput,
  base64: Base64 = toBase64,
): ProofRecord {
  return {
    schema_version: SCHEMA.proofRecord,
    proof_id: input.proof_id,
    aep_hash: hashHex(sha256, input.aep),
    envelope: buildEnvelope(input.aep, input.signature, input.key_id, base64),
  };
}

export function proofRecordHash(sha256: Sha256, record: ProofRecord): string {
  const { payload, payloadType, signatures } = record.envelope;
  const [{ keyid, sig }] = signatures;
  const { aep_hash, proof_id, schema_version } = record;
  const envelope = { payload: '', payloadType, signatures: [{ keyid, sig }] };
  const text = orderedText({ aep_hash, envelope, proof_id, schema_version });
  // Base64 needs no escapes. In `JSON.stringify`, the search for characters to escape takes longer than the hash.
  return hashHex(
    sha256,
    text.replace('"payload":""', () => `"payload":"${payload}"`),
  );
}

/** The hashes in the log entry of a proof. */
export interface LoggedHashes {
  aep_hash: string;
  proof_record_hash: string;
}

/** `toBase64`, or a faster encoder of the platform. */
export type Base64 = (bytes: Uint8Array) => string;

export function loggedHashes(
  sha256: Sha256,
  input: ProofRecordInput,
  base64: Base64 = toBase64,
): LoggedHashes {
  const record = buildProofRecord(sha256, input, base64);
  return { aep_hash: record.aep_hash, proof_record_hash: proofRecordHash(sha256, record) };
}
