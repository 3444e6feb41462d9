import type { UnreadAnswer, UnreadReason } from '#runtime/http-server';

/** What is said to a request that never came as far as a route. */
export const UNREAD_DETAILS: Record<UnreadReason, string> = {
  malformed_request: 'This is not an HTTP request that can be read.',
  incomplete_body: 'The connection ended before the body did.',
  request_timeout: 'The request did not arrive in time. Send it again.',
  headers_too_large: 'Send fewer or shorter headers.',
};

/** The answer to it: a problem like every other. */
export function unreadAnswer(
  document: Record<string, unknown>,
  headers: Record<string, string>,
): UnreadAnswer {
  return {
    headers: {
      'Content-Type': 'application/problem+json',
      'Cache-Control': 'no-store',
      ...headers,
    },
    body: Buffer.from(JSON.stringify(document)),
  };
}
