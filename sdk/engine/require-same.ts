import type { Answer } from '../http/attempt.js';
import { unexpected } from '../http/documents.js';

/** An answer about another proof than was asked for is none. */
export function requireSame<T extends { proof_id: string }>(
  answer: Answer,
  asked: string | undefined,
  document: T,
): T {
  if (document.proof_id !== asked) throw unexpected(answer, 'the answer is about another proof');
  return document;
}
