import type { IncomingMessage } from 'node:http';
import { Problem } from './problem.js';

/**
 * The body's bytes as they were sent. Refuses what is not plain JSON by its headers, and counts
 * while reading, so that a body over `limit` is refused at the first byte too many whatever its
 * Content-Length said.
 */
export async function readBody(req: IncomingMessage, limit: number): Promise<Buffer> {
  requireJson(req);
  if (Number(req.headers['content-length'] ?? 0) > limit) throw tooLarge(limit);
  return read(req, limit);
}

function requireJson(req: IncomingMessage): void {
  const encoding = req.headers['content-encoding'];
  if (encoding !== undefined && encoding.trim().toLowerCase() !== 'identity') {
    throw new Problem(
      'unsupported_content_encoding',
      'Send the body as it is, without Content-Encoding.',
      { headers: { 'Accept-Encoding': 'identity' } },
    );
  }
  const [mediaType = '', ...parameters] = (req.headers['content-type'] ?? '').split(';');
  const charset = parameters
    .map((parameter) => parameter.trim().toLowerCase())
    .find((parameter) => parameter.startsWith('charset='))
    ?.slice('charset='.length)
    .replaceAll('"', '');
  if (mediaType.trim().toLowerCase() !== 'application/json' || (charset ?? 'utf-8') !== 'utf-8') {
    throw new Problem('unsupported_media_type', 'Send Content-Type: application/json, in UTF-8.', {
      headers: { Accept: 'application/json' },
    });
  }
}

function tooLarge(limit: number): Problem {
  return new Problem('body_too_large', `The body must not be longer than ${limit} bytes.`);
}

function read(req: IncomingMessage, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
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
      reject(new Problem('incomplete_body', 'The connection ended before the body did.'));
    };
    req.on('data', onData).on('end', onEnd).on('error', onBroken).on('close', onBroken);
  });
}
