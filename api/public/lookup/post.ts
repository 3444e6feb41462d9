import type { IncomingMessage, ServerResponse } from 'node:http';
import { sendFailure } from '../http/answer.js';
import { readBody } from '../http/problem.js';
import type { PublicContext } from '../context.js';
import { unreadable } from '../snapshot/serving.js';
import { requestedByBody } from './generic.js';
import type { AskedLookup } from './routes.js';
import { answerVerdict } from './verdict.js';

/** POST /api/public/verify: the generic lookup with its question in a body. Changes nothing. */
export async function postLookup(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  let asked: Pick<AskedLookup, 'route' | 'requested'>;
  try {
    asked = requestedByBody(await readBody(req));
  } catch (error) {
    // There may have been a share token in it, wherever.
    sendFailure(ctx, req, res, error, unreadable, null, true);
    return;
  }
  // Counted as a request by whoever counts what Express answers.
  answerVerdict(ctx, req, res, asked.route, asked.requested, null);
}
