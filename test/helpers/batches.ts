import { randomBytes } from 'node:crypto';
import type { Batch, BatchResult } from '#protocol/schemas/batch';
import { executeBody, headersFor, type Call, type Reply, type TestEngine } from './engine.js';
import { TENANT } from './registry.js';

export const BATCHES = '/v1/batches';

export function envelope(overrides: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    schema_version: 'svc.agent.admission.envelope/1.0',
    tenant_id: TENANT,
    agent: { id: 'agent-1' },
    requested_at: '2026-11-20T17:29:00.123Z',
    nonce: randomBytes(16).toString('hex'),
    kind: 'admission',
    action: 'BOOK_RESERVATION',
    ...overrides,
  };
}

/** Bodies that each differ from all others. */
export function executeBodies(count: number, overrides: Record<string, unknown> = {}): object[] {
  return Array.from({ length: count }, () => executeBody(overrides));
}

export function batchCall(
  key: string,
  body: unknown,
  headers: Record<string, string> = {},
  tenantId = TENANT,
): Call {
  return {
    path: BATCHES,
    headers: { ...headersFor(key, tenantId), ...headers },
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  };
}

export const LINES = { 'Content-Type': 'application/x-ndjson' };

export const batchIn = (reply: Reply): Batch => reply.json as unknown as Batch;

/** Every result of a batch, as lines. */
export async function resultsOf(
  engine: TestEngine,
  key: string,
  batchId: string,
  tenantId = TENANT,
): Promise<BatchResult[]> {
  const reply = await engine.call({
    method: 'GET',
    path: `${BATCHES}/${batchId}/results`,
    headers: { ...headersFor(key, tenantId), Accept: 'application/x-ndjson' },
  });
  if (reply.status !== 200) throw new Error(`answered ${reply.status} ${reply.bytes.toString()}`);
  const lines = reply.bytes.toString().split('\n');
  if (lines.pop() !== '') throw new Error('the last line has no end');
  return lines.map((line) => JSON.parse(line) as BatchResult);
}
