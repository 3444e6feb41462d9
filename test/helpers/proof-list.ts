import { expect } from 'vitest';
import { proofListSchema, type ListedProof, type ProofList } from '#protocol/schemas/proof-list';
import { headersFor, type Reply, type TestEngine } from './engine.js';

export type Query = Record<string, string>;

export function listReply(
  engine: TestEngine,
  query: Query | string,
  apiKey: string,
): Promise<Reply> {
  const text = typeof query === 'string' ? query : new URLSearchParams(query).toString();
  const path = text === '' ? '/v1/proofs' : `/v1/proofs?${text}`;
  return engine.call({ method: 'GET', path, headers: headersFor(apiKey) });
}

export async function listPage(
  engine: TestEngine,
  query: Query,
  apiKey: string,
): Promise<ProofList> {
  const reply = await listReply(engine, query, apiKey);
  expect(reply.status).toBe(200);
  return proofListSchema.parse(reply.json);
}

/** Every page of it. */
export async function listAll(
  engine: TestEngine,
  query: Query,
  apiKey: string,
): Promise<ListedProof[]> {
  const found: ListedProof[] = [];
  let cursor: string | null = null;
  do {
    const next: ProofList = await listPage(
      engine,
      { ...query, ...(cursor === null ? {} : { cursor }) },
      apiKey,
    );
    found.push(...next.proofs);
    cursor = next.next_cursor;
  } while (cursor !== null);
  return found;
}
