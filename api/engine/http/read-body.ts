import type { IncomingMessage } from 'node:http';
import { BodyRefusedError, readJsonBody } from '#runtime/json-body';
import { Problem } from './problem.js';

/** The body's bytes as they were sent, at most `limit` of them. */
export async function readBody(req: IncomingMessage, limit: number): Promise<Buffer> {
  try {
    return await readJsonBody(req, limit);
  } catch (error) {
    if (!(error instanceof BodyRefusedError)) throw error;
    throw new Problem(error.code, error.message, { headers: error.headers, cause: error });
  }
}
