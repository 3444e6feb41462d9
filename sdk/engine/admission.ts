import * as z from 'zod';
import type { Receipt } from '../../protocol/aep.js';
import { hashHex, nobleSha256, documentHash } from '../../protocol/hash.js';
import type { JsonValue } from '../../protocol/json.js';
import {
  agentEnvelopeSchema,
  agentReceiptSchema,
  type AgentEnvelope,
  type AgentReceipt,
  executeReceiptSchema,
  executeRequestSchema,
  type ExecuteReceipt,
  type ExecuteRequest,
  admissionStatusSchema,
  approvalRequiredSchema,
} from '../../protocol/schemas/admission.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { formatTime } from '../../protocol/time.js';
import { canonicalBody } from '../canonical.js';
import { type Denial, type RequiredApproval, SdkError } from '../errors.js';
import { retryAfterMs, validInput, httpError, readDocument, unexpected } from '../http/answers.js';
import { type Answer, withDeadline, type Deadline } from '../http/attempt.js';
import type { HttpClient } from '../http/client.js';
import { type EngineOptions, invalidInput } from '../options.js';
import { openEngine, randomHex, requireProofId } from './engine.js';
import { openEvidenceFetcher, fetchEvidence } from './receipt-evidence.js';

/** An execute request; `schema_version` and the tenant are optional. */
export type ExecuteInput = Omit<ExecuteRequest, 'schema_version' | 'tenant_id'> &
  Partial<Pick<ExecuteRequest, 'schema_version' | 'tenant_id'>>;

/**
 * The complete, validated body of `POST /v1/intents/execute`. Sending it again repeats the admission.
 * Throws `invalid_input`.
 */
export function executeRequest(tenantId: string, input: ExecuteInput): ExecuteRequest {
  return validInput(executeRequestSchema, {
    schema_version: SCHEMA.executeRequest,
    tenant_id: tenantId,
    ...input,
  });
}

/**
 * `POST /v1/intents/execute`: admits an execution, and returns the engine's receipt once the proof is
 * signed and in the log. The same input returns the first receipt again, so a retry is safe. The
 * idempotency header is the hash of the canonical request.
 *
 * Throws `SdkError`: `policy_denied` for a denial, with its receipt in `denial`; `approval_required`,
 * with its receipt in `approval`; and, when there is no decision, `lane_locked`, `forbidden`,
 * `rate_limited`, `unavailable` or another code. Returns only a receipt with the status `ADMITTED` and
 * the hash of this request.
 */
export async function executeIntentHttp(
  options: EngineOptions,
  input: ExecuteInput,
): Promise<Admitted<ExecuteReceipt>> {
  const body = () => executeRequest(options.tenantId, input);
  return submit(options, '/v1/intents/execute', executeReceiptSchema, body);
}

/**
 * An agent's envelope: kind `admission` requests a decision before an action, kind `outcome` records
 * its result, kind `close` ends a run. Defaults: a random `nonce`, `requested_at` now, the caller's
 * tenant.
 */
export type AgentInput = AgentEnvelope extends infer E
  ? E extends AgentEnvelope
    ? Omit<E, 'schema_version' | 'tenant_id' | 'nonce' | 'requested_at'> &
        Partial<Pick<E, 'schema_version' | 'tenant_id' | 'nonce' | 'requested_at'>> & {
          /**
           * The caller's own name for this request, such as the id of a record. The SDK derives the nonce
           * from it, so that an equal input repeats the admission. Needs `requested_at`.
           */
          dedupeKey?: string;
        }
    : never
  : never;

/**
 * The complete, validated body of `POST /v1/agent/admissions`. Without a `nonce` or a `dedupeKey` in
 * the input, each call is a new admission: keep the envelope to repeat the admission. Throws
 * `invalid_input`.
 */
export function agentEnvelope(
  tenantId: string,
  { dedupeKey, ...input }: AgentInput,
): AgentEnvelope {
  if (dedupeKey !== undefined && input.requested_at === undefined) {
    // Has no default: with the time of the call, each call would be a new admission.
    throw invalidInput('/requested_at', '/requested_at: is required with dedupeKey');
  }
  return validInput(agentEnvelopeSchema, {
    schema_version: SCHEMA.agentEnvelope,
    tenant_id: tenantId,
    nonce: dedupeKey === undefined ? randomHex(NONCE_BYTES) : nonceOf(dedupeKey),
    requested_at: formatTime(Date.now()),
    ...input,
  });
}

const NONCE_BYTES = 16;
const nonceOf = (dedupeKey: string): string =>
  documentHash(nobleSha256, ['svc.dedupe', dedupeKey]).slice(0, 2 * NONCE_BYTES);

/**
 * `POST /v1/agent/admissions`: admits an agent's action, or records its outcome. Arguments and results
 * stay with the agent, which sends their `canonicalHash`. The idempotency header is the hash of the
 * canonical envelope.
 *
 * Returns and throws like `executeIntentHttp`; `invalid_request` for a parent that is not an admitted
 * action of this tenant.
 */
export async function admitHttp(
  options: EngineOptions,
  input: AgentInput,
): Promise<Admitted<AgentReceipt>> {
  const body = () => agentEnvelope(options.tenantId, input);
  return submit(options, '/v1/agent/admissions', agentReceiptSchema, body);
}

/**
 * Waits for the decision on an accepted admission, at the polling interval of the service. Once an
 * approver has decided, waits for the second decision, whose evidence must name this proof; to read that
 * evidence, the API key needs the scope `read`.
 *
 * Throws like `executeIntentHttp`; `timeout` has the `proofId` for the next call.
 */
export async function followAdmissionHttp(
  options: EngineOptions,
  input: { proof_id: string },
): Promise<Admitted<Receipt>> {
  const engine = openEngine(options);
  const proofId = requireProofId(input.proof_id);
  const expected = { schema: receiptSchema, requestHash: null, proofId };
  return admit(engine, options, (deadline) => poll(engine, options, expected, deadline));
}

/** Runs a call, and starts to fetch the evidence of the receipt that it returns or throws. */
export async function admit<R extends Receipt>(
  engine: HttpClient,
  options: EngineOptions,
  run: (deadline: Deadline) => Promise<Admitted<R>>,
  onReceipt: (receipt: Receipt) => void = () => undefined,
): Promise<Admitted<R>> {
  const fetchEvidence = openEvidenceFetcher(engine, options);
  const note = (receipt: Receipt): void => {
    fetchEvidence(receipt);
    onReceipt(receipt);
  };
  try {
    const receipt = await withDeadline(options, run);
    note(receipt);
    return receipt;
  } catch (error) {
    const decided = error instanceof SdkError ? (error.denial ?? error.approval) : undefined;
    if (decided !== undefined) note(decided.receipt);
    throw error;
  }
}

const replayed = new WeakSet<Receipt>();

/**
 * Whether the engine had already accepted the request of this receipt: from an earlier call, or from an
 * attempt of this call whose response was lost. Pass the same object that `executeIntentHttp` or
 * `admitHttp` returned, or that is in their error: a copy yields false.
 */
export const isReplayed = (receipt: Receipt): boolean => replayed.has(receipt);

async function submit<R extends Receipt>(
  options: EngineOptions,
  path: '/v1/intents/execute' | '/v1/agent/admissions',
  schema: z.ZodType<R>,
  document: () => object,
): Promise<Admitted<R>> {
  const engine = openEngine(options);
  const body = canonicalBody(document());
  const requestHash = hashHex(nobleSha256, body);
  let isRepeat = false;
  const run = async (deadline: Deadline): Promise<Admitted<R>> => {
    const request = { method: 'POST', path, body, idempotencyKey: requestHash } as const;
    const answer = await engine.send(request, deadline);
    isRepeat = answer.headers.get('idempotent-replayed') === 'true';
    const expected = { schema, requestHash };
    const decided = readAdmission(answer, expected);
    if (typeof decided !== 'string') return decided;
    await withProofId(decided, () => pause(answer.headers, deadline));
    return poll(engine, options, { ...expected, proofId: decided }, deadline);
  };
  return admit(engine, options, run, (receipt) => {
    if (isRepeat) replayed.add(receipt);
  });
}

export function poll<R extends Receipt>(
  engine: HttpClient,
  options: EngineOptions,
  expected: ExpectedReceipt<R> & { proofId: string },
  deadline: Deadline,
): Promise<Admitted<R>> {
  const { proofId, requestHash, schema } = expected;
  const request = { method: 'GET', path: `/v1/admissions/${proofId}` } as const;
  const requireSecondDecision = async (receipt: Receipt): Promise<void> => {
    if (requestHash !== null || receipt.registry_proof_id === proofId) return;
    const { evidence } = await fetchEvidence(engine, options, receipt, deadline);
    if (evidence.approval?.envelope.statement.proof_id === proofId) return;
    throw new SdkError('unexpected_response', 'the decision is not about the requested proof');
  };
  return withProofId(proofId, async () => {
    for (;;) {
      const answer = await engine.send(request, deadline);
      // An approval leads to a second decision about the request, and this decision has a proof of its own.
      const wanted = answer.status === 202 ? expected : { requestHash, schema };
      let decided: Admitted<R> | string;
      try {
        decided = readAdmission(answer, wanted);
      } catch (error) {
        const denial = error instanceof SdkError ? error.denial : undefined;
        if (denial !== undefined) await requireSecondDecision(denial.receipt);
        throw error;
      }
      if (typeof decided !== 'string') {
        await requireSecondDecision(decided);
        return decided;
      }
      await pause(answer.headers, deadline);
    }
  });
}

const POLL_MS = 1_000;
const MIN_POLL_MS = 50;

/** Waits as long as the service requests, else the polling interval. */
export function pause(headers: Headers, deadline: Deadline): Promise<void> {
  const ms = retryAfterMs(headers, Date.now()) ?? POLL_MS;
  return deadline.sleep(Math.max(ms, MIN_POLL_MS));
}

/**
 * Adds the proof id to errors: without it the caller would lose an accepted admission. A denial names its
 * own proof.
 */
async function withProofId<T>(proofId: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof SdkError) || error.denial !== undefined) throw error;
    throw new SdkError(error.code, error.message, { ...error, proofId, cause: error.cause });
  }
}

export type { Receipt };
export const receiptSchema = z.union([executeReceiptSchema, agentReceiptSchema]);
/** The receipt of an admission; the SDK returns no other receipt. */
export type Admitted<R extends Receipt> = R & { status: 'ADMITTED' };

export interface ExpectedReceipt<R extends Receipt> {
  schema: z.ZodType<R>;
  /** SHA-256 of the sent canonical body; null when another process sent it. */
  requestHash: string | null;
  proofId?: string | undefined;
}

/** Recomputes the hashes that bind a receipt to its request. */
function matches<R extends Receipt>(
  receipt: R,
  { requestHash, proofId }: ExpectedReceipt<R>,
): boolean {
  const { response_hash, ...rest } = receipt;
  return (
    receipt.request_hash === (requestHash ?? receipt.request_hash) &&
    receipt.registry_proof_id === (proofId ?? receipt.registry_proof_id) &&
    receipt.receipt_id.endsWith(`-${receipt.request_hash.slice(0, 16)}`) &&
    response_hash === documentHash(nobleSha256, rest as JsonValue)
  );
}

export function isAdmission<R extends Receipt>(
  receipt: R,
  expected: ExpectedReceipt<R>,
): receipt is Admitted<R> {
  return receipt.status === 'ADMITTED' && matches(receipt, expected);
}

/** A decision in a document; null unless the document has the receipt of the expected decision. */
function decisionIn<R extends Receipt, Status extends Receipt['status']>(
  document: object,
  status: Status,
  expected: ExpectedReceipt<R>,
) {
  // An older engine may omit the reasons and their sentences.
  const { receipt: given, reasons, sentences } = document as Partial<Record<string, unknown>>;
  const receipt = expected.schema.safeParse(given).data;
  if (receipt?.status !== status || !matches(receipt, expected)) return null;
  return {
    receipt: receipt as Receipt & { status: Status },
    reasons: Array.isArray(reasons) ? reasons.filter(isText) : [],
    sentences: Object.fromEntries(
      Object.entries(sentences ?? {}).filter((one): one is [string, string] => isText(one[1])),
    ),
  };
}

/** The denial in a `policy_denied` problem; null unless the problem has the receipt of the expected decision. */
export const denialIn = <R extends Receipt>(
  problem: object,
  expected: ExpectedReceipt<R>,
): Denial | null => decisionIn(problem, 'DENIED', expected);

const undecidedSchema = z.discriminatedUnion('state', [
  admissionStatusSchema,
  approvalRequiredSchema,
]);

/** The required approval in an answer; null unless the answer has the receipt of the expected decision. */
export function approvalIn<R extends Receipt>(
  answer: { expires_at?: string },
  expected: ExpectedReceipt<R>,
): RequiredApproval | null {
  const { expires_at } = answer;
  const decision = decisionIn(answer, 'APPROVAL_REQUIRED', expected);
  return decision === null || expires_at === undefined ? null : { ...decision, expires_at };
}

const isText = (value: unknown): value is string => typeof value === 'string';

/**
 * Returns the `ADMITTED` receipt of this request, or the proof id of a pending admission. Throws for a
 * denial, for a required approval and for every other response.
 */
function readAdmission<R extends Receipt>(
  answer: Answer,
  expected: ExpectedReceipt<R>,
): Admitted<R> | string {
  if (answer.status === 200) {
    const receipt = readDocument(answer, expected.schema);
    if (!isAdmission(receipt, expected)) throw mismatch(answer);
    return receipt;
  }
  if (answer.status === 202) {
    const status = readDocument(answer, undecidedSchema);
    const { proof_id: proofId } = status;
    // The location must name this admission; its host is ignored. Browsers hide the location from other
    // origins.
    const location = answer.headers.get('location') ?? `/v1/admissions/${proofId}`;
    const isSame = proofId === (expected.proofId ?? proofId);
    if (!isSame || !location.endsWith(`/v1/admissions/${proofId}`)) throw mismatch(answer);
    if (status.state === 'approval_required') {
      const approval = approvalIn(status, { ...expected, proofId });
      if (approval === null) throw mismatch(answer);
      const why = Object.values(approval.sentences).join(' ');
      const message = `the action requires an approval before ${approval.expires_at}${why && `: ${why}`}`;
      throw new SdkError('approval_required', message, { status: 202, approval, proofId });
    }
    return proofId;
  }
  const error = httpError(answer);
  const { problem, status } = error;
  if (problem?.code !== 'policy_denied') throw error;
  const denial = denialIn(problem, expected);
  if (denial === null || status !== 403) throw mismatch(answer);
  const { registry_proof_id: proofId } = denial.receipt;
  throw new SdkError('policy_denied', problem.detail, { status, problem, denial, proofId });
}

function mismatch(answer: Answer): SdkError {
  return unexpected(answer, 'the response does not belong to this request');
}
