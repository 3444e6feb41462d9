import type { IncomingMessage } from 'node:http';
import { BodyRefusedError, readJsonBody } from '#runtime/http/json-body';
import { ApiProblem, type ProblemOptions } from '../../http/problem.js';

/** Every error of the public API, by its code: status and code are stable, the texts are not. */
export const PROBLEMS = {
  malformed_request: [400, 'The request is malformed'],
  incomplete_body: [400, 'The body ended early'],
  invalid_utf8: [400, 'The body is not UTF-8'],
  malformed_json: [400, 'The body is not JSON'],
  duplicate_key: [400, 'A member name is repeated'],
  lone_surrogate: [400, 'A string has half of a surrogate pair'],
  nul_character: [400, 'A string has the character U+0000'],
  integer_out_of_range: [400, 'A number cannot be represented exactly'],
  too_deep: [400, 'The body is nested too deeply'],
  unsupported_schema_version: [400, 'The schema version is not supported'],
  unknown_field: [400, 'A field is not known'],
  invalid_field: [400, 'A field is not valid'],
  identifier_missing: [400, 'Nothing to look up was given'],
  identifier_ambiguous: [400, 'More than one thing to look up was given'],
  route_not_found: [404, 'There is nothing here'],
  log_file_not_found: [404, 'The log has no such file'],
  leaf_not_found: [404, 'The log has no such leaf'],
  method_not_allowed: [405, 'The method is not allowed here'],
  request_timeout: [408, 'The request did not arrive in time'],
  body_too_large: [413, 'The body is too large'],
  unsupported_media_type: [415, 'The body must be application/json in UTF-8'],
  unsupported_content_encoding: [415, 'The body must not be encoded'],
  headers_too_large: [431, 'The headers are too large'],
  snapshot_missing: [503, 'No snapshot has been loaded yet'],
  snapshot_expired: [503, 'The snapshot is too old to assert anything'],
  snapshot_unreadable: [503, 'The snapshot cannot be read'],
} as const satisfies Record<string, readonly [number, string]>;

export type ProblemCode = keyof typeof PROBLEMS;

export class Problem extends ApiProblem<ProblemCode> {
  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(PROBLEMS, code, detail, options);
  }
}

/** The largest lookup request, in bytes: one identifier and some room. */
export const BODY_LIMIT = 16 * 1024;

/** The body of a lookup request as it was sent. */
export async function readBody(req: IncomingMessage): Promise<Buffer> {
  try {
    return await readJsonBody(req, BODY_LIMIT);
  } catch (error) {
    if (!(error instanceof BodyRefusedError)) throw error;
    throw new Problem(error.code, error.message, { headers: error.headers, cause: error });
  }
}
