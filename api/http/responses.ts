import type { IncomingMessage, ServerResponse } from 'node:http';
import type { UnreadAnswer, UnreadReason } from '#runtime/http/server';
import type { ProblemTable } from '../openapi/types.js';

export interface ProblemMember {
  /** JSON Pointer (RFC 6901); the empty string is the whole body. */
  pointer: string;
  detail: string;
}

export interface ProblemOptions {
  errors?: ProblemMember[];
  members?: Record<string, unknown>;
  headers?: Record<string, string>;
  cause?: unknown;
  /** The tenant exceeded its own share of a limit: other tenants are served, so operators get no alert. */
  isTenantLimit?: boolean;
}

/** An error response (RFC 9457), thrown by any handler. Each API defines its own codes. */
export abstract class ApiProblem<Code extends string> extends Error {
  override readonly name = 'Problem';
  readonly status: number;
  private readonly title: string;

  protected constructor(
    table: Record<Code, ProblemTable[string]>,
    readonly code: Code,
    detail: string,
    readonly options: ProblemOptions,
  ) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    [this.status, this.title] = table[code];
  }

  /** The body (RFC 9457). `type` is a URN, because a URL would change with the deployment. */
  document(requestId?: string): Record<string, unknown> {
    const { code, status, title, message, options } = this;
    return {
      type: `urn:svc:problem:${code}`,
      title,
      status,
      detail: message,
      code,
      ...(requestId !== undefined && { request_id: requestId }),
      ...(options.errors && { errors: options.errors }),
      ...options.members,
    };
  }
}

/** The policy of responses that are not pages: no subresources, no framing. */
const NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'";

/**
 * Headers of every response of both APIs, including those sent before routing.
 *
 * `Strict-Transport-Security` is absent: both APIs speak plain HTTP, where RFC 6797 (7.2) forbids
 * it. The TLS proxy sets it.
 *
 * @param readableBy `cross-origin` lets pages of any origin load the response
 */
export function securityHeaders(readableBy: 'same-origin' | 'cross-origin') {
  return {
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': NO_CONTENT_POLICY,
    'Cross-Origin-Resource-Policy': readableBy,
    // A path may hold a share token, which a Referer header would leak.
    'Referrer-Policy': 'no-referrer',
  };
}

export const UNREAD_DETAILS: Record<UnreadReason, string> = {
  malformed_request: 'The request is not valid HTTP. Correct it before sending it again.',
  incomplete_body: 'The connection closed before the body was complete. Send the request again.',
  request_timeout: 'The request did not arrive within the time limit. Send it again.',
  headers_too_large: 'The headers exceed the size limit. Send fewer or shorter headers.',
};

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

/** Unread bodies up to this length, in bytes, are drained, which keeps the connection reusable. */
const READ_TO_THE_END = 1024 * 1024;
const DISCARD_AT_MOST = 8 * 1024 * 1024;
const LINGER_MS = 2_000;

export function leavesLongBody(req: IncomingMessage): boolean {
  const isShort =
    req.headers['transfer-encoding'] === undefined &&
    Number(req.headers['content-length'] ?? 0) <= READ_TO_THE_END;
  return !req.complete && !isShort;
}

/**
 * Ends a `Connection: close` response that was sent before the body was read. Closing a socket with
 * unread bytes resets it, and a reset destroys a response in flight: so the server discards what
 * the client still sends, for a bounded time, before it closes.
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
