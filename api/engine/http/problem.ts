import type { Request, Response } from 'express';
import { v7 as uuidv7 } from 'uuid';
import * as z from 'zod';
import { agentReceiptSchema, executeReceiptSchema } from '#protocol/schemas/admission';
import type { UnreadAnswer, UnreadReason } from '#runtime/http/server';
import {
  ApiProblem,
  type ProblemOptions,
  endDiscarding,
  leavesLongBody,
  UNREAD_DETAILS,
  unreadAnswer,
} from '../../http/responses.js';
import { requestIdOf, SECURITY_HEADERS } from './respond.js';

/** Status and title of every engine error. Clients switch on code and status, which never change. */
export const PROBLEMS = {
  malformed_path: [400, 'Invalid path encoding'],
  invalid_query: [400, 'Invalid query parameter'],
  malformed_request: [400, 'Malformed request'],
  duplicate_header: [400, 'Duplicate header'],
  unsupported_api_version: [400, 'Unsupported API version'],
  invalid_idempotency_key: [400, 'Invalid idempotency key'],
  incomplete_body: [400, 'Incomplete body'],
  invalid_utf8: [400, 'Body not in UTF-8'],
  malformed_json: [400, 'Malformed JSON'],
  duplicate_key: [400, 'Duplicate member name'],
  lone_surrogate: [400, 'Lone surrogate in a string'],
  nul_character: [400, 'Character U+0000 in a string'],
  integer_out_of_range: [400, 'Integer out of range'],
  too_deep: [400, 'Body nested too deeply'],
  unsupported_schema_version: [400, 'Unsupported schema version'],
  missing_field: [400, 'Missing field'],
  unknown_field: [400, 'Unknown field'],
  invalid_field: [400, 'Invalid field'],
  invalid_fact: [400, 'Invalid fact'],
  invalid_run: [400, 'Invalid run'],
  empty_batch: [400, 'Empty batch'],
  unauthenticated: [401, 'Missing or invalid API key'],
  tenant_header_missing: [403, 'Missing tenant header'],
  tenant_mismatch: [403, 'API key of another tenant'],
  scope_missing: [403, 'API key lacks scope'],
  tenant_not_allowlisted: [403, 'Tenant not allowlisted'],
  tenant_body_mismatch: [403, 'Another tenant in the body'],
  key_restricted: [403, 'API key restricted'],
  api_key_revoked: [403, 'API key revoked'],
  policy_denied: [403, 'Action denied by policy'],
  route_not_found: [404, 'Not found'],
  admission_not_found: [404, 'Admission not found'],
  proof_not_found: [404, 'Proof not found'],
  pending_proof_not_found: [404, 'Pending proof not found'],
  revocation_not_found: [404, 'Revocation not found'],
  share_token_not_found: [404, 'Share token not found'],
  package_not_found: [404, 'Package not found'],
  key_not_found: [404, 'API key not found'],
  batch_not_found: [404, 'Batch not found'],
  overlay_not_found: [404, 'Overlay not found'],
  approver_not_found: [404, 'Approver not found'],
  run_not_found: [404, 'Run not found'],
  method_not_allowed: [405, 'Method not allowed'],
  not_acceptable: [406, 'Not acceptable'],
  request_timeout: [408, 'Request timeout'],
  upload_too_slow: [408, 'Slow upload'],
  already_decided: [409, 'Already decided'],
  approver_retired: [409, 'Approver retired'],
  pending_verdict: [409, 'Proof not yet verified'],
  payload_erased: [410, 'Payload erased'],
  pending_checkpoint: [409, 'No checkpoint covers the proof yet'],
  run_seq_taken: [409, 'Sequence number already used in the run'],
  run_closed: [409, 'Run closed'],
  run_incomplete: [409, 'Run incomplete'],
  run_open: [409, 'Run not closed'],
  body_too_large: [413, 'Body too large'],
  too_many_items: [413, 'Too many items'],
  unsupported_media_type: [415, 'Unsupported media type'],
  unsupported_content_encoding: [415, 'Unsupported content encoding'],
  rate_limited: [429, 'Too many requests'],
  policy_unknown: [422, 'Unknown policy set'],
  idempotency_conflict: [422, 'Idempotency key used for another body'],
  parent_not_found: [422, 'Parent proof not found'],
  parent_not_admitted: [422, 'Parent proof not an admitted action'],
  approval_rejected: [422, 'Approval rejected'],
  registration_rejected: [422, 'Registration rejected'],
  artifact_absent: [422, 'Artifact absent'],
  share_target_unknown: [422, 'Unknown share target'],
  expiry_over: [422, 'Expiry not in the future'],
  package_member_unfit: [422, 'Proof not eligible for a package'],
  invalid_overlay: [422, 'Invalid overlay'],
  overlay_untested: [422, 'Overlay case failed or missing'],
  too_many_overlays: [422, 'Too many overlays'],
  too_many_approvers: [422, 'Too many approvers'],
  too_many_keys: [422, 'Too many API keys'],
  lane_locked: [423, 'Environment locked'],
  headers_too_large: [431, 'Headers too large'],
  internal_error: [500, 'Internal error'],
  admission_failed: [500, 'Failed admission'],
  revocation_failed: [500, 'Failed revocation'],
  integrity_failure: [500, 'Integrity failure'],
  database_unavailable: [503, 'Database unavailable'],
  tenant_busy: [503, 'Too many concurrent requests'],
  queue_too_deep: [503, 'Queue full'],
  decision_pending: [503, 'Decision pending'],
  too_many_batches: [503, 'Too many concurrent batches'],
  renderer_busy: [503, 'PDF renderer busy'],
  render_timeout: [503, 'PDF rendering timeout'],
  policy_missing: [503, 'No active policy'],
} as const satisfies Record<string, readonly [number, string]>;

export type ProblemCode = keyof typeof PROBLEMS;

/** Details of the problems that always have the same text: the cause and the next step. */
const DETAILS = {
  malformed_path: 'The path is not valid percent-encoding. Encode it as RFC 3986 requires.',
  unsupported_api_version:
    'The only API version is v1. Send svc-api-version: v1 or omit the header.',
  invalid_idempotency_key: 'X-Svc-Idempotency-Key must be 1 to 255 characters of printable ASCII.',
  invalid_fact:
    'The active policy set does not declare a fact, or declares it with another type. Correct the facts listed in errors.',
  empty_batch: 'A batch must have at least one item.',
  unauthenticated: 'Send a valid engine key in X-Svc-Api-Key.',
  tenant_header_missing: 'X-Svc-Tenant-Id is missing. Send your tenant id in this header.',
  tenant_mismatch:
    'X-Svc-Tenant-Id does not name the tenant of this API key. Send the id of your own tenant.',
  tenant_not_allowlisted:
    'This tenant is not allowlisted for execution. This request admitted nothing, but an earlier attempt may have. Contact the operator.',
  tenant_body_mismatch:
    'tenant_id does not name the tenant of this API key. Send the id of your own tenant.',
  route_not_found: 'The engine API has no such path. See /docs for all paths.',
  admission_not_found:
    'This tenant has no admission with that id. Check the id in the Location header of the 202.',
  proof_not_found:
    'This tenant has no proof with that id. Check the id; a pending admission has no proof yet.',
  pending_proof_not_found:
    'This tenant has no proof with that id. Check the id of the pending proof.',
  already_decided:
    'Another approval of this proof was accepted before. Read the admission for its second decision.',
  revocation_not_found:
    'This tenant has requested no revocation of that artifact. Check the proof id and the artifact kind.',
  share_token_not_found:
    'This tenant has no share token with that hash. Check the hash in the list of share tokens.',
  package_not_found: 'This tenant has no package with that id. Check the id.',
  key_not_found:
    'This tenant has no API key with that id. Check the key id in the list of API keys.',
  batch_not_found: 'This tenant has no batch with that id. Check the id.',
  overlay_not_found:
    'This tenant has no overlay with that id. Check the id in the list of overlays.',
  approver_not_found:
    'This tenant has no approver with that registration hash. Check the hash in the list of approvers.',
  registration_rejected:
    'The registration does not prove possession of its key. Nothing was registered. Sign the registration with the key in it.',
  approver_retired:
    'This registration was retired, permanently. Create and register another registration.',
  run_not_found:
    'This tenant has no requests of that agent in a run with that id. Check the id and agent.',
  invalid_run:
    'The time in the id of the run is in the future. Nothing was admitted. Create the UUIDv7 with a correct clock.',
  run_open: 'The run has no decided close yet. Send a close, and wait until it is decided.',
  run_seq_taken:
    'Another request of the run has this seq. Nothing was admitted. Send the request with the next seq.',
  run_closed: 'The run is closed. Nothing was admitted. Send the request in a new run.',
  upload_too_slow:
    'Less than 1 MiB of the body arrived within a second while other batches waited. This request was not accepted, but an earlier attempt may have been. Send it again later or in smaller batches.',
  pending_verdict:
    'The verification system has not verified this proof yet. Send the request again after Retry-After.',
  payload_erased: 'The payload of this proof was erased. Only its commitments in the log remain.',
  pending_checkpoint:
    'No signed checkpoint covers this proof yet. Retry after the publisher has signed one.',
  policy_unknown: 'No policy set with that digest is stored. Check policy_digest.',
  idempotency_conflict:
    'This X-Svc-Idempotency-Key was sent before, with a different body or in an AuthZEN evaluation. Send a new key.',
  expiry_over: 'expires_at is not in the future. Send a later expires_at.',
  package_member_unfit:
    'A package takes only proofs of this tenant’s own admitted actions. Remove the proofs listed in errors.',
  invalid_overlay:
    'A rule of the overlay is invalid under the policy set in force, or is not a forbid rule. Correct the rules listed in errors.',
  too_many_overlays:
    'This tenant has stored the maximum number of overlays. Activate a stored overlay, or contact the operator.',
  too_many_approvers:
    'This tenant has registered the maximum number of approvers, including retired approvers. Contact the operator.',
  too_many_keys:
    'This tenant has the maximum number of API keys that are not revoked, including expired keys. Revoke the keys that you no longer need.',
  internal_error:
    'The engine failed and cannot confirm an admission. Send the request again: the same body is admitted once, but a repeated AuthZEN evaluation is another admission.',
  admission_failed:
    'The engine could not process the admission and quarantined it. Nothing was admitted. Contact the operator.',
  revocation_failed:
    'The engine could not process the revocation and quarantined it. Nothing was revoked. Contact the operator.',
  database_unavailable:
    'The engine cannot reach the database. Send the request again: the same body is admitted once, but a repeated AuthZEN evaluation is another admission.',
  tenant_busy:
    'The request waited too long for another request of this tenant, a connection or a lock. It changed nothing, but an earlier attempt may have. Send it again.',
  queue_too_deep:
    'Too many admissions of the service or of this tenant are undecided. This request was not accepted, but an earlier attempt may have been. Send the request again after Retry-After.',
  decision_pending:
    'The evaluation is stored but not decided yet, so the action must not proceed. Read the admission at Location, or send the request again as another evaluation.',
  too_many_batches:
    'Other batches use all upload capacity. This request was not accepted, but an earlier attempt may have been. Send the batch again after Retry-After.',
  renderer_busy:
    'All PDF renderers are busy. Send the request again after Retry-After, or use the format json or aep-json.',
  render_timeout:
    'Rendering exceeded the time limit. Send the request again after Retry-After, or use the format json or aep-json.',
  policy_missing:
    'No policy is active, so nothing was admitted. The operator must activate a policy.',
} as const satisfies Partial<Record<ProblemCode, string>>;

const retryAfter = (seconds: number) => ({ 'Retry-After': String(seconds) });

const HEADERS: Partial<Record<ProblemCode, Record<string, string>>> = {
  unauthenticated: { 'WWW-Authenticate': 'ApiKey realm="engine"' },
  // The connection closes, because the rest of the body is not read.
  upload_too_slow: { ...retryAfter(1), Connection: 'close' },
  pending_verdict: retryAfter(1),
  pending_checkpoint: retryAfter(1),
  database_unavailable: retryAfter(1),
  tenant_busy: retryAfter(1),
  too_many_batches: retryAfter(1),
  queue_too_deep: retryAfter(2),
  decision_pending: retryAfter(1),
  renderer_busy: retryAfter(2),
  render_timeout: retryAfter(5),
  policy_missing: retryAfter(30),
};

export class Problem extends ApiProblem<ProblemCode> {
  constructor(code: keyof typeof DETAILS, options?: ProblemOptions);
  constructor(code: ProblemCode, detail: string, options?: ProblemOptions);
  constructor(code: ProblemCode, detail: string | ProblemOptions = {}, more?: ProblemOptions) {
    const options = more ?? (typeof detail === 'string' ? {} : detail);
    const text = typeof detail === 'string' ? detail : DETAILS[code as keyof typeof DETAILS];
    super(PROBLEMS, code, text, { ...options, headers: { ...HEADERS[code], ...options.headers } });
  }
}

export function at(pointer: string, detail: string): ProblemOptions {
  return { errors: [{ pointer, detail }] };
}

export function sendProblem(req: Request, res: Response, problem: Problem): void {
  const body = Buffer.from(JSON.stringify(problem.document(requestIdOf(res))));
  res.statusCode = problem.status;
  res.setHeader('Content-Type', 'application/problem+json');
  res.setHeader('Content-Length', body.length);
  res.setHeader('Cache-Control', 'no-store');
  for (const [name, value] of Object.entries(problem.options.headers ?? {})) {
    res.setHeader(name, value);
  }
  if (leavesLongBody(req)) {
    res.setHeader('Connection', 'close');
    endDiscarding(req, res, body);
  } else res.end(body);
}

export const PROBLEM_MEMBERS: Partial<Record<ProblemCode, z.ZodObject>> = {
  policy_denied: z.looseObject({
    /** A denial is signed and logged like an admission, so it has a receipt. */
    receipt: z.union([executeReceiptSchema, agentReceiptSchema]),
    /** Sorted: ids of the policies that decided, `fact.<name>` and `budget.<counter>`. */
    reasons: z.array(z.string()),
    sentences: z.record(z.string(), z.string()),
  }),
};

const RETRY = { 'Retry-After': 'Seconds to wait before retrying.' };

export const PROBLEM_HEADERS: Partial<Record<ProblemCode, Record<string, string>>> = {
  ...Object.fromEntries(
    Object.entries(HEADERS).flatMap(([code, sent]) =>
      'Retry-After' in sent ? [[code, RETRY]] : [],
    ),
  ),
  unauthenticated: {
    'WWW-Authenticate': 'How to authenticate: `ApiKey`, for AuthZEN evaluations also `Bearer`.',
  },
  unsupported_media_type: { Accept: 'The supported media types.' },
  unsupported_content_encoding: {
    'Accept-Encoding': '`identity`: send the body without encoding.',
  },
  rate_limited: { 'Retry-After': 'Seconds until the next request is allowed.' },
  upload_too_slow: { ...RETRY, Connection: '`close`: the rest of the body is not read.' },
  decision_pending: { ...RETRY, Location: 'Path of the admission.' },
};

export function unreadProblem(reason: UnreadReason): UnreadAnswer {
  const requestId = uuidv7();
  const problem = new Problem(reason, UNREAD_DETAILS[reason]);
  return unreadAnswer(problem.document(requestId), {
    ...SECURITY_HEADERS,
    'X-Request-Id': requestId,
  });
}
