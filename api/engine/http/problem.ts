import type { Request, Response } from 'express';
import { v7 as uuidv7 } from 'uuid';
import * as z from 'zod';
import { agentReceiptSchema } from '#protocol/schemas/agent';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import type { UnreadAnswer, UnreadReason } from '#runtime/http/server';
import { ApiProblem, type ProblemOptions } from '../../http/problem.js';
import {
  endDiscarding,
  leavesLongBody,
  UNREAD_DETAILS,
  unreadAnswer,
} from '../../http/unread-request.js';
import { requestIdOf, SECURITY_HEADERS } from './request-context.js';

/**
 * Every error of the engine, by its code: what a client may switch on. The texts are for people
 * and may change; status and code may not.
 */
export const PROBLEMS = {
  malformed_path: [400, 'The path is not valid percent-encoding'],
  invalid_query: [400, 'A query parameter is not valid'],
  malformed_request: [400, 'The request is malformed'],
  duplicate_header: [400, 'A header was sent more than once'],
  unsupported_api_version: [400, 'The API version is not supported'],
  invalid_idempotency_key: [400, 'The idempotency key is not valid'],
  incomplete_body: [400, 'The body ended early'],
  invalid_utf8: [400, 'The body is not UTF-8'],
  malformed_json: [400, 'The body is not JSON'],
  duplicate_key: [400, 'A member name is repeated'],
  lone_surrogate: [400, 'A string has half of a surrogate pair'],
  nul_character: [400, 'A string has the character U+0000'],
  integer_out_of_range: [400, 'A number cannot be represented exactly'],
  too_deep: [400, 'The body is nested too deeply'],
  unsupported_schema_version: [400, 'The schema version is not supported'],
  missing_field: [400, 'A required field is missing'],
  unknown_field: [400, 'A field is not known'],
  invalid_field: [400, 'A field is not valid'],
  empty_batch: [400, 'The batch has no items'],
  unauthenticated: [401, 'The API key is missing or not valid'],
  tenant_header_missing: [403, 'The tenant header is missing'],
  tenant_mismatch: [403, 'The API key belongs to another tenant'],
  scope_missing: [403, 'The API key has not the scope for this'],
  tenant_not_allowlisted: [403, 'The tenant is not allowlisted'],
  tenant_body_mismatch: [403, 'The body names another tenant'],
  api_key_revoked: [403, 'The API key was revoked'],
  policy_denied: [403, 'The policy denies this action'],
  route_not_found: [404, 'There is nothing here'],
  admission_not_found: [404, 'There is no such admission'],
  proof_not_found: [404, 'There is no such proof'],
  revocation_not_found: [404, 'There is no such revocation'],
  share_token_not_found: [404, 'There is no such share token'],
  package_not_found: [404, 'There is no such package'],
  batch_not_found: [404, 'There is no such batch'],
  method_not_allowed: [405, 'The method is not allowed here'],
  not_acceptable: [406, 'No representation is acceptable'],
  request_timeout: [408, 'The request did not arrive in time'],
  upload_too_slow: [408, 'Slow upload'],
  pending_verdict: [409, 'The proof is not yet verified'],
  payload_erased: [410, 'The payload of the proof was erased'],
  pending_checkpoint: [409, 'The proof is not yet under a checkpoint'],
  body_too_large: [413, 'The body is too large'],
  too_many_items: [413, 'The batch has too many items'],
  unsupported_media_type: [415, 'The body is not of a type that is taken'],
  unsupported_content_encoding: [415, 'The body must not be encoded'],
  rate_limited: [429, 'Too many requests'],
  policy_unknown: [422, 'There is no policy set of that digest'],
  idempotency_conflict: [422, 'The idempotency key belongs to another body'],
  parent_not_found: [422, 'There is no such parent proof'],
  parent_not_admitted: [422, 'The parent proof is not an admitted action'],
  artifact_absent: [422, 'The proof has no such artifact'],
  share_target_unknown: [422, 'There is nothing of that id to share'],
  expiry_over: [422, 'The expiry is not in the future'],
  package_member_unfit: [422, 'A proof cannot be in a package'],
  lane_locked: [423, 'The lane is locked'],
  headers_too_large: [431, 'The headers are too large'],
  internal_error: [500, 'The engine failed'],
  admission_failed: [500, 'The admission failed'],
  revocation_failed: [500, 'The revocation failed'],
  integrity_failure: [500, 'The stored proof does not verify'],
  database_unavailable: [503, 'The database cannot be reached'],
  tenant_busy: [503, 'Too many concurrent requests'],
  queue_too_deep: [503, 'Too much is waiting'],
  too_many_batches: [503, 'Too many batches are being taken in'],
  renderer_busy: [503, 'Too many documents are being rendered'],
  render_timeout: [503, 'The document was not rendered in time'],
  policy_missing: [503, 'No policy is active'],
} as const satisfies Record<string, readonly [number, string]>;

export type ProblemCode = keyof typeof PROBLEMS;

export class Problem extends ApiProblem<ProblemCode> {
  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(PROBLEMS, code, detail, options);
  }
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

/** What some problems carry besides the members that all of them have. */
export const PROBLEM_MEMBERS: Partial<Record<ProblemCode, z.ZodObject>> = {
  policy_denied: z.looseObject({
    /** A denial is signed and in the log like an admission; its receipt says so. */
    receipt: z.union([executeReceiptSchema, agentReceiptSchema]),
    /** The policies that decided, sorted. */
    reasons: z.array(z.string()),
    /** What some of them say to people, by policy. */
    sentences: z.record(z.string(), z.string()),
  }),
};

/** Headers that come with a problem, each with what it says. */
export const PROBLEM_HEADERS: Partial<Record<ProblemCode, Record<string, string>>> = {
  unauthenticated: { 'WWW-Authenticate': 'How to authenticate: `ApiKey`.' },
  unsupported_media_type: { Accept: 'The media type that is taken.' },
  unsupported_content_encoding: { 'Accept-Encoding': '`identity`: send the body as it is.' },
  pending_checkpoint: { 'Retry-After': 'Seconds to wait before asking again.' },
  rate_limited: { 'Retry-After': 'Seconds until the next request is allowed.' },
  database_unavailable: { 'Retry-After': 'Seconds to wait before trying again.' },
  tenant_busy: { 'Retry-After': 'Seconds to wait before trying again.' },
  upload_too_slow: {
    'Retry-After': 'Seconds to wait before trying again.',
    Connection: '`close`: the rest of the body is not read.',
  },
  policy_missing: { 'Retry-After': 'Seconds to wait before trying again.' },
};

/** The answer to what never came as far as a route. */
export function unreadProblem(reason: UnreadReason): UnreadAnswer {
  const requestId = uuidv7();
  const problem = new Problem(reason, UNREAD_DETAILS[reason]);
  return unreadAnswer(problem.document(requestId), {
    ...SECURITY_HEADERS,
    'X-Request-Id': requestId,
  });
}
