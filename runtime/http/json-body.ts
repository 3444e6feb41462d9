import { on } from 'node:events';
import type { IncomingMessage } from 'node:http';

export type BodyRefusal =
  'unsupported_content_encoding' | 'unsupported_media_type' | 'body_too_large' | 'incomplete_body';

/** The request body has the wrong type, is too large or is incomplete. */
export class BodyRefusedError extends Error {
  constructor(
    readonly code: BodyRefusal,
    message: string,
    /** Response headers that name the accepted types or encodings. */
    readonly headers: Record<string, string> = {},
  ) {
    super(message);
  }
}

const JSON_TYPE = 'application/json';

/**
 * Reads the raw bytes of a JSON body. Rejects other types by their headers, and counts while
 * reading, so that `limit` holds whatever Content-Length claims. A rejected body is not read
 * further; the caller decides whether to keep the connection.
 */
export async function readJsonBody(req: IncomingMessage, limit: number): Promise<Buffer> {
  requireType(req, [JSON_TYPE]);
  requireShort(req, limit);
  return readBody(req, limit);
}

/**
 * Streams a body of one of `types`, with the checks of `readJsonBody`. Once `signal` fires, reading
 * throws the signal's reason and leaves the rest of the body on the connection.
 */
export function streamBody(
  req: IncomingMessage,
  limit: number,
  types: readonly string[],
  signal: AbortSignal,
): { type: string; chunks: AsyncGenerator<Buffer, void> } {
  const type = requireType(req, types);
  requireShort(req, limit);
  return { type, chunks: chunksOf(req, limit, signal) };
}

async function* chunksOf(
  req: IncomingMessage,
  limit: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void> {
  let length = 0;
  requireConnected(req);
  // Uses `on`, which ends a pending read when the signal fires; the stream's own iterator does not.
  const arriving = on(req, 'data', { signal, close: ['end', 'close'], ...WATERMARKS });
  try {
    for await (const [chunk] of arriving as AsyncIterable<[Buffer]>) {
      length += chunk.length;
      if (length > limit) throw tooLarge(limit);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof BodyRefusedError) throw error;
    signal.throwIfAborted();
    throw incomplete();
  }
  if (!req.complete) throw incomplete();
}

/** Buffered chunks at which the stream is paused and resumed. */
const WATERMARKS = { highWaterMark: 16, lowWaterMark: 4 };

/** A destroyed request emits no more events, so reading it would never end. */
function requireConnected(req: IncomingMessage): void {
  if (req.destroyed) throw incomplete();
}

function requireShort(req: IncomingMessage, limit: number): void {
  if (Number(req.headers['content-length'] ?? 0) > limit) throw tooLarge(limit);
}

function incomplete(): BodyRefusedError {
  return new BodyRefusedError('incomplete_body', 'The connection ended before the body did.');
}

function requireType(req: IncomingMessage, types: readonly string[]): string {
  // An empty list element counts as absent (RFC 9110, 5.6.1.2).
  const codings = (req.headers['content-encoding'] ?? '').split(',').map((one) => one.trim());
  if (!codings.every((coding) => coding === '' || coding.toLowerCase() === 'identity')) {
    throw new BodyRefusedError(
      'unsupported_content_encoding',
      'Send the body without Content-Encoding.',
      { 'Accept-Encoding': 'identity' },
    );
  }
  const [type = '', ...parameters] = (req.headers['content-type'] ?? '').toLowerCase().split(';');
  const charset = parameters.map((text) => text.trim()).find((text) => text.startsWith('charset='));
  const isUtf8 = charset === undefined || /^charset="?utf-8"?$/.test(charset);
  if (!types.includes(type.trim()) || !isUtf8) {
    throw new BodyRefusedError(
      'unsupported_media_type',
      `Send Content-Type: ${types.join(' or ')}, in UTF-8.`,
      { Accept: types.join(', ') },
    );
  }
  return type.trim();
}

function tooLarge(limit: number): BodyRefusedError {
  return new BodyRefusedError(
    'body_too_large',
    `The body must not be longer than ${String(limit)} bytes.`,
  );
}

export function readBody(req: IncomingMessage, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    requireConnected(req);
    const chunks: Buffer[] = [];
    let length = 0;
    const stop = (): void => {
      req.off('data', onData).off('end', onEnd).off('error', onBroken).off('close', onBroken);
    };
    const onData = (chunk: Buffer): void => {
      length += chunk.length;
      if (length > limit) {
        stop();
        req.pause();
        reject(tooLarge(limit));
        return;
      }
      chunks.push(chunk);
    };
    const onEnd = (): void => {
      stop();
      resolve(Buffer.concat(chunks, length));
    };
    const onBroken = (): void => {
      stop();
      reject(incomplete());
    };
    req.on('data', onData).on('end', onEnd).on('error', onBroken).on('close', onBroken);
  });
}
