import { v7 as uuidv7 } from 'uuid';
import type { UnreadAnswer, UnreadReason } from '#runtime/http-server';
import { Problem, problemDocument } from './problem.js';

const DETAILS: Record<UnreadReason, string> = {
  malformed_request: 'This is not an HTTP request that can be read.',
  incomplete_body: 'The connection ended before the body did.',
  request_timeout: 'The request did not arrive in time. Send it again.',
  headers_too_large: 'Send fewer or shorter headers.',
};

/** The answer to what never came as far as a route: a problem like every other. */
export function unreadProblem(reason: UnreadReason): UnreadAnswer {
  const problem = new Problem(reason, DETAILS[reason]);
  const requestId = uuidv7();
  return {
    headers: {
      'Content-Type': 'application/problem+json',
      'Cache-Control': 'no-store',
      'X-Content-Type-Options': 'nosniff',
      'X-Request-Id': requestId,
    },
    body: Buffer.from(JSON.stringify(problemDocument(problem, requestId))),
  };
}
