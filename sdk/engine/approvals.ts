import { getPublicKeyAsync, signAsync } from '@noble/ed25519';
import { approvalToSign, registrationToSign } from '../../protocol/approvals.js';
import {
  type ApprovalSubject,
  readApprovalRequest as readSubject,
} from '../../protocol/approval-request.js';
import { equalBytes, fromBase64, fromHex, isBytes, toBase64Url } from '../../protocol/bytes.js';
import { attempt } from '../../protocol/errors.js';
import { nobleSha256 } from '../../protocol/hash.js';
import { admissionStatusSchema } from '../../protocol/schemas/admission.js';
import { approvalRequestSchema } from '../../protocol/schemas/approval-request.js';
import {
  type Approval,
  approvalSchema,
  approvalStatementSchema,
  type ApprovalStatement,
  type Registration,
  registrationSchema,
} from '../../protocol/schemas/approvals.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { parseTime } from '../../protocol/time.js';
import { canonicalHash } from '../canonical.js';
import { type RequiredApproval, SdkError } from '../errors.js';
import { readDocument, unexpected, validBody, validInput } from '../http/answers.js';
import { backoffMs } from '../http/client.js';
import { type EngineOptions, invalidInput } from '../options.js';
import { admit, type Admitted, poll, type Receipt, receiptSchema } from './admission.js';
import { openEngine, randomHex, requireProofId } from './engine.js';

export type { Approval, ApprovalSubject, Registration as ApproverRegistration };

/**
 * An Ed25519 private key: its 32 bytes, or a PEM file (PKCS #8), which
 * `openssl genpkey -algorithm ed25519` writes.
 */
export type ApproverPrivateKey = Uint8Array | string;

/** A registered approver who signs with a key in a file. */
export interface Approver {
  privateKey: ApproverPrivateKey;
  registration: Registration;
}

/**
 * Creates the registration of an approver, which proves possession of the key. {@link registerApproverHttp}
 * or the operator (`admin approver add`) registers the approver. Each call returns a new registration, with
 * a random salt: keep the registration, because approvals name its hash. Throws `invalid_input`.
 */
export async function createApproverRegistration(input: {
  tenantId: string;
  /** The name of the approver, which policies and auditors see. */
  approver: string;
  privateKey: ApproverPrivateKey;
}): Promise<Registration> {
  const seed = seedOf(input.privateKey);
  const unsigned = {
    schema_version: SCHEMA.approver,
    tenant_id: input.tenantId,
    approver: input.approver,
    public_key: { kty: 'OKP', crv: 'Ed25519', x: await publicKeyOf(seed) },
    webauthn: null,
    salt: randomHex(32),
  } as const;
  return validInput(registrationSchema, {
    ...unsigned,
    signature: await signWith(seed, registrationToSign(unsigned)),
  });
}

/** Returns the seed of the private key. Throws `invalid_input` unless the key belongs to the registration. */
export async function requireApprover({ privateKey, registration }: Approver): Promise<Uint8Array> {
  const { public_key, webauthn } = validInput(registrationSchema, registration);
  const seed = seedOf(privateKey);
  if (webauthn === null && public_key.x === (await publicKeyOf(seed))) return seed;
  throw invalidKey('is not the key of this registration');
}

/** The decision of an approver; `aep_hash` is the hash that the approver recomputed. */
export type ApprovalInput = Pick<
  ApprovalStatement,
  'proof_id' | 'aep_hash' | 'decision' | 'expires_at'
>;

/**
 * Signs a decision about a pending proof. Take `aep_hash` from {@link readApprovalRequest}, which
 * recomputes the hash. Throws `invalid_input`, also when the key does not belong to the registration.
 */
export async function signApproval(approver: Approver, input: ApprovalInput): Promise<Approval> {
  const seed = await requireApprover(approver);
  const { registration } = approver;
  const { proof_id, aep_hash, decision, expires_at } = input;
  const statement = validInput(approvalStatementSchema, {
    schema_version: SCHEMA.approval,
    tenant_id: registration.tenant_id,
    proof_id,
    aep_hash,
    decision,
    registration_hash: canonicalHash(registration),
    expires_at,
    nonce: randomHex(16),
  });
  const signature = await signWith(seed, approvalToSign(statement));
  return { schema_version: SCHEMA.approvalEnvelope, statement, signature };
}

/**
 * `GET /v1/approvals/{proof_id}`: the subject of an approver's decision, recomputed from the signed proof.
 * Needs a key with the scope `approve`.
 *
 * Throws `evidence_rejected` when hashes or commitments do not match, a value is withheld, or the response
 * is about a different proof; `invalid_request` (`already_decided`) and `not_found`.
 */
export async function readApprovalRequest(
  options: EngineOptions,
  input: { proof_id: string },
): Promise<ApprovalSubject> {
  const engine = openEngine(options);
  const proofId = requireProofId(input.proof_id);
  const answer = await engine.read({ method: 'GET', path: `/v1/approvals/${proofId}` });
  const request = readDocument(answer, approvalRequestSchema);
  const { tenantId } = options;
  const read = readSubject(nobleSha256, request, { proofId, tenantId });
  if ('subject' in read) return read.subject;
  throw new SdkError('evidence_rejected', `the pending proof does not verify: ${read.fault}`);
}

/**
 * `POST /v1/approvals`: submits a signed decision, and returns the proof id of the second decision that
 * the approval causes; `followAdmissionHttp` waits for the second decision. Submitting the same approval
 * again returns the same id.
 *
 * Throws `SdkError` unless the engine accepts the approval: `invalid_request` (`approval_rejected`,
 * `already_decided`), `not_found` or another code.
 */
export async function submitApproval(
  options: EngineOptions,
  approval: Approval,
): Promise<{ proof_id: string }> {
  const engine = openEngine(options);
  const body = validBody(approvalSchema, approval);
  const request = { method: 'POST', path: '/v1/approvals', body, expected: [202] } as const;
  const answer = await engine.read(request);
  const { proof_id } = readDocument(answer, admissionStatusSchema);
  if (proof_id !== approval.statement.proof_id) return { proof_id };
  throw unexpected(answer, 'the second decision has the id of the pending proof');
}

const POLL = { baseDelayMs: 1_000, maxDelayMs: 5_000 };
/** An approval that arrived in time may lead to its second decision shortly after `expires_at`. */
const DECIDED_WITHIN_MS = 30_000;

/**
 * Waits until an approver has decided about a required approval, and returns the receipt of the second
 * decision, under which the action may run.
 *
 * Throws `policy_denied` for a rejection and for a policy that denies, `approval_required` when the
 * approval expired, and `timeout` or `aborted`, after which another call may return the receipt.
 * Without `timeoutMs` the call waits until the approval expires, and outlasts failures of the service.
 *
 * @param input `approval.receipt` of the error `approval_required`, or the id of the pending proof. With
 *   the id, the API key needs the scope `read` if an approver decided before this call: the SDK then reads
 *   evidence, to verify that the second decision is about this proof
 */
export async function waitForApproval(
  options: EngineOptions,
  input: RequiredApproval['receipt'] | { proof_id: string },
): Promise<Admitted<Receipt>> {
  const receipt = 'registry_proof_id' in input ? input : null;
  const proofId = requireProofId(receipt?.registry_proof_id ?? (input as never)['proof_id']);
  const patient = { ...options, timeoutMs: options.timeoutMs ?? Infinity };
  const engine = openEngine(patient);
  return admit(engine, patient, async (deadline) => {
    let requestHash = receipt?.request_hash ?? null;
    let pending: SdkError | null = null;
    // Measured by the local clock, which always advances: a service may repeat one `Date` in all its responses.
    let end = Infinity;
    for (let sent = 1; ; sent++) {
      const expected = { schema: receiptSchema, requestHash, proofId };
      try {
        const decided = await poll(engine, patient, expected, deadline);
        if (requestHash === null || decided.registry_proof_id !== proofId) return decided;
        const message = 'the engine reports ADMIT for a proof that requires an approval';
        throw new SdkError('unexpected_response', message, { proofId });
      } catch (error) {
        if (!(error instanceof SdkError) || deadline.signal.aborted) throw error;
        if (error.approval !== undefined) {
          pending = error;
          requestHash = error.approval.receipt.request_hash;
          const leftMs = parseTime(error.approval.expires_at) - engine.answeredAt();
          end = Math.min(end, performance.now() + leftMs + DECIDED_WITHIN_MS);
        } else if (!error.retryable || pending === null) throw error;
      }
      if (performance.now() >= end) throw pending;
      await deadline.sleep(backoffMs(sent, { ...POLL, ...options.retry }, Math.random()));
    }
  });
}

/** The bytes of PKCS #8 that precede the 32 bytes of an Ed25519 key (RFC 8410). */
const PKCS8 = fromHex('302e020100300506032b657004220420');
const PEM = /^-----BEGIN PRIVATE KEY-----\s([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----\s*$/;

function seedOf(privateKey: ApproverPrivateKey): Uint8Array {
  const [, text = ''] = isBytes(privateKey) ? [] : (PEM.exec(privateKey) ?? []);
  const der = attempt(() => fromBase64(text.replaceAll(/\s/g, '')));
  const isPem = der !== undefined && equalBytes(der.subarray(0, PKCS8.length), PKCS8);
  const seed = isBytes(privateKey) ? privateKey : isPem ? der.subarray(PKCS8.length) : null;
  if (seed?.length === 32) return seed;
  throw invalidKey('expected an Ed25519 key: 32 bytes, or PKCS #8 in PEM');
}

const invalidKey = (message: string): SdkError =>
  invalidInput('/privateKey', `/privateKey: ${message}`);

const publicKeyOf = async (seed: Uint8Array) => toBase64Url(await getPublicKeyAsync(seed));

const signWith = async (seed: Uint8Array, message: Uint8Array) => ({
  type: 'ed25519' as const,
  sig: toBase64Url(await signAsync(message, seed)),
});
