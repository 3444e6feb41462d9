import type { UnreadAnswer, UnreadReason } from '#runtime/http/server';
import { unreadAnswer, UNREAD_DETAILS } from '../../http/unread-request.js';
import { SECURITY_HEADERS } from './answer.js';
import { Problem } from './problem.js';

/** The response to a request that failed before routing. */
export function unreadProblem(reason: UnreadReason): UnreadAnswer {
  const problem = new Problem(reason, UNREAD_DETAILS[reason]);
  return unreadAnswer(problem.document(), SECURITY_HEADERS);
}
