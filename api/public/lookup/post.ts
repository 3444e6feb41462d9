import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PublicContext } from '../context.js';
import { requestedByBody } from './generic.js';
import { readBody } from '../http/read-body.js';
import { answerVerdict } from './verdict.js';

/** POST /api/public/verify: the generic lookup with its question in a body. Changes nothing. */
export async function postLookup(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  const { route, requested } = requestedByBody(await readBody(req));
  answerVerdict(ctx, req, res, route, requested);
}
