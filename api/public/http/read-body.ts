import type { IncomingMessage } from 'node:http';
import { BodyRefusedError, readJsonBody } from '#runtime/json-body';
import { Problem } from './problem.js';

/** The largest lookup request, in bytes: one identifier and some room. */
export const BODY_LIMIT = 16 * 1024;

/** The body of a lookup request as it was sent. */
export async function readBody(req: IncomingMessage): Promise<Buffer> {
  try {
    return await readJsonBody(req, BODY_LIMIT);
  } catch (error) {
    if (!(error instanceof BodyRefusedError)) throw error;
    // The rest of a body that is too large is not read, so the connection cannot go on.
    const rest = error.code === 'body_too_large' ? { Connection: 'close' } : {};
    const headers = { ...error.headers, ...rest };
    throw new Problem(error.code, error.message, { headers, cause: error });
  }
}
