import { proofListSchema, type ListedProof } from '../../protocol/schemas/proof-list.js';
import { withDeadline } from '../http/deadline.js';
import { readDocument, unexpected } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';

/** Joined by "and"; every one may be absent. */
export interface ProofFilter {
  action?: string;
  status?: 'VALID' | 'REVOKED' | 'EXPIRED' | 'BACKEND_LOOKUP_REQUIRED';
  effect?: 'ADMIT' | 'DENY';
  lane?: 'execute' | 'agent';
  intent_id?: string;
  /** Accepted at this time or later; RFC 3339 UTC with milliseconds. */
  from?: string;
  /** Accepted before this time. */
  to?: string;
}

/** One page of the list of proofs. */
export interface ProofPage {
  proofs: ListedProof[];
  /** What `cursor` of the next page has to be; null after the last. */
  next_cursor: string | null;
}

const PAGE = 200;

/**
 * `GET /v1/proofs`: one page of the tenant's proofs, the newest first. A page may be short, or
 * empty, and not the last: `next_cursor` says whether there are more.
 */
export async function listProofPageHttp(
  options: EngineOptions,
  input: ProofFilter & { cursor?: string; limit?: number } = {},
): Promise<ProofPage> {
  const engine = openEngine(options);
  const given = Object.entries(input).filter(([, value]) => value !== undefined);
  const query = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
  return withDeadline(options, async (deadline) => {
    const answer = await engine.read({ method: 'GET', path: '/v1/proofs', query }, deadline);
    const { proofs, next_cursor } = readDocument(answer, proofListSchema);
    if (next_cursor !== null && next_cursor === input.cursor) {
      throw unexpected(answer, 'the list does not go on: its next page is this one');
    }
    return { proofs, next_cursor };
  });
}

/**
 * All of the tenant's proofs, the newest first, asked for page after page as they are taken. Proofs
 * that are appended meanwhile do not appear. The time of the options is that of each page.
 */
export async function* listProofsHttp(
  options: EngineOptions,
  filter: ProofFilter = {},
): AsyncGenerator<ListedProof, void, undefined> {
  let cursor: string | null = null;
  do {
    const page: ProofPage = await listProofPageHttp(options, {
      ...filter,
      limit: PAGE,
      ...(cursor !== null && { cursor }),
    });
    yield* page.proofs;
    cursor = page.next_cursor;
  } while (cursor !== null);
}
