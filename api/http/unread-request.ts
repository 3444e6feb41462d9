import type { IncomingMessage, ServerResponse } from 'node:http';
import type { UnreadAnswer, UnreadReason } from '#runtime/http/server';

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

/** A body of known length up to this is simply read to its end, and the connection lives on. */
const READ_TO_THE_END = 1024 * 1024;
const DISCARD_AT_MOST = 8 * 1024 * 1024;
const LINGER_MS = 2_000;

/** Whether an answer is given before the request's body is read, and the body is too long to read. */
export function leavesLongBody(req: IncomingMessage): boolean {
  return !req.complete && !bodyIsShort(req);
}

/**
 * Ends an answer that was decided before the request's body was read, and that says
 * `Connection: close`.
 *
 * A connection that is closed with unread bytes in it is reset, and a reset throws away an answer
 * that is still on its way. So when the rest of the body is too long to keep the connection, the
 * answer is sent, the client is told that the connection closes, and what it still sends is thrown
 * away for a bounded time before it does.
 */
export function endDiscarding(req: IncomingMessage, res: ServerResponse, body: Uint8Array): void {
  res.write(body);
  let discarded = 0;
  const close = (): void => {
    clearTimeout(timer);
    req.off('data', count);
    res.end();
  };
  const count = (chunk: Buffer): void => {
    discarded += chunk.length;
    if (discarded > DISCARD_AT_MOST) close();
  };
  const timer = setTimeout(close, LINGER_MS);
  req.on('data', count);
  req.once('end', close);
  req.once('close', close);
  req.resume();
}

function bodyIsShort(req: IncomingMessage): boolean {
  if (req.headers['transfer-encoding'] !== undefined) return false;
  return Number(req.headers['content-length'] ?? 0) <= READ_TO_THE_END;
}
