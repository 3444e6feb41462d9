import type { IncomingMessage } from 'node:http';
import { BodyRefusedError, readJsonBody } from '#runtime/http/json-body';
import { ApiProblem, type ProblemOptions } from '../../http/responses.js';

/** Status and title of every problem code. Statuses and codes are stable; titles are not. */
export const PROBLEMS = {
  malformed_request: [400, 'Malformed request'],
  incomplete_body: [400, 'Incomplete body'],
  invalid_utf8: [400, 'Invalid UTF-8 in the body'],
  malformed_json: [400, 'Malformed JSON'],
  duplicate_key: [400, 'Duplicate member name'],
  lone_surrogate: [400, 'Lone surrogate in a string'],
  nul_character: [400, 'U+0000 in a string'],
  integer_out_of_range: [400, 'Number out of range'],
  too_deep: [400, 'Too many levels of nesting'],
  unsupported_schema_version: [400, 'Unsupported schema version'],
  unknown_field: [400, 'Unknown field'],
  invalid_field: [400, 'Invalid field'],
  identifier_missing: [400, 'Missing identifier'],
  identifier_ambiguous: [400, 'More than one identifier'],
  route_not_found: [404, 'Not found'],
  log_file_not_found: [404, 'Log file not found'],
  leaf_not_found: [404, 'Leaf not found'],
  method_not_allowed: [405, 'Method not allowed'],
  request_timeout: [408, 'Request timeout'],
  body_too_large: [413, 'Body too large'],
  unsupported_media_type: [415, 'Unsupported media type'],
  unsupported_content_encoding: [415, 'Unsupported content encoding'],
  headers_too_large: [431, 'Headers too large'],
  snapshot_missing: [503, 'No snapshot loaded'],
  snapshot_expired: [503, 'Snapshot expired'],
  snapshot_unreadable: [503, 'Snapshot unreadable'],
} as const satisfies Record<string, readonly [number, string]>;

export type ProblemCode = keyof typeof PROBLEMS;

export class Problem extends ApiProblem<ProblemCode> {
  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(PROBLEMS, code, detail, options);
  }
}

export const BODY_LIMIT = 16 * 1024;

export async function readBody(req: IncomingMessage): Promise<Buffer> {
  try {
    return await readJsonBody(req, BODY_LIMIT);
  } catch (error) {
    if (!(error instanceof BodyRefusedError)) throw error;
    throw new Problem(error.code, error.message, { headers: error.headers, cause: error });
  }
}

/** The problem of a read error, which is never NOT_FOUND: the record may exist. */
export function unreadable(cause: unknown): Problem {
  return new Problem('snapshot_unreadable', 'The snapshot cannot be read right now.', {
    cause,
    headers: { 'Retry-After': '5' },
  });
}
