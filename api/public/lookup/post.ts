import type { IncomingMessage, ServerResponse } from 'node:http';
import { sendFailure } from '../http/answer.js';
import { readBody } from '../http/problem.js';
import type { PublicContext } from '../context.js';
import { unreadable } from '../snapshot/serving.js';
import { requestedByBody } from './generic.js';
import type { RequestedLookup } from './routes.js';
import { answerVerdict } from './verdict.js';

/** POST /api/public/verify: the generic lookup with the identifier in the body. Read-only. */
export async function postLookup(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  let target: Pick<RequestedLookup, 'route' | 'requested'>;
  try {
    target = requestedByBody(await readBody(req));
  } catch (error) {
    // Secret: the body may contain a share token.
    sendFailure(ctx, req, res, error, unreadable, null, true);
    return;
  }
  // No template: meteredHandler counts requests that go through Express.
  answerVerdict(ctx, req, res, target.route, target.requested, null);
}
