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
    throw new Problem(error.code, error.message, { headers: error.headers, cause: error });
  }
}
