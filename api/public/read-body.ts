import type { IncomingMessage } from 'node:http';
import { Problem } from './problem.js';

/** The largest lookup request, in bytes: one identifier and some room. */
export const BODY_LIMIT = 16 * 1024;

/**
 * The body of a lookup request as it was sent. Its length is counted while it arrives, so that one
 * byte too many is refused whatever Content-Length said.
 */
export async function readBody(req: IncomingMessage): Promise<Buffer> {
  requireJson(req);
  if (Number(req.headers['content-length'] ?? 0) > BODY_LIMIT) throw tooLarge();
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of req.iterator({ destroyOnReturn: false })) {
      const bytes = chunk as Buffer;
      length += bytes.length;
      if (length > BODY_LIMIT) throw tooLarge();
      chunks.push(bytes);
    }
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem('incomplete_body', 'The connection ended before the body did.', {
      cause: error,
    });
  }
  return Buffer.concat(chunks, length);
}

function requireJson(req: IncomingMessage): void {
  const encoding = req.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (encoding !== 'identity') {
    throw new Problem('unsupported_content_encoding', 'Send the body without Content-Encoding.', {
      headers: { 'Accept-Encoding': 'identity' },
    });
  }
  const [type = '', ...parameters] = (req.headers['content-type'] ?? '').toLowerCase().split(';');
  const charset = parameters.map((text) => text.trim()).find((text) => text.startsWith('charset='));
  const isUtf8 = charset === undefined || /^charset="?utf-8"?$/.test(charset);
  if (type.trim() !== 'application/json' || !isUtf8) {
    throw new Problem('unsupported_media_type', 'Send Content-Type: application/json, in UTF-8.', {
      headers: { Accept: 'application/json' },
    });
  }
}

function tooLarge(): Problem {
  // The rest of the body is not read, so the connection cannot go on.
  return new Problem('body_too_large', `The body must not be longer than ${BODY_LIMIT} bytes.`, {
    headers: { Connection: 'close' },
  });
}
