import type { UnreadAnswer, UnreadReason } from '#runtime/http-server';
import { Problem } from './problem.js';

const DETAILS: Record<UnreadReason, string> = {
  malformed_request: 'This is not an HTTP request that can be read.',
  incomplete_body: 'The connection ended before the body did.',
  request_timeout: 'The request did not arrive in time. Send it again.',
  headers_too_large: 'Send fewer or shorter headers.',
};

/** The answer to what never came as far as a route: a problem like every other. */
export function unreadProblem(reason: UnreadReason): UnreadAnswer {
  const problem = new Problem(reason, DETAILS[reason]);
  return {
    headers: { 'Content-Type': 'application/problem+json', 'Cache-Control': 'no-store' },
    body: Buffer.from(JSON.stringify(problem.document())),
  };
}
