import type { ExecuteReceipt } from '#protocol/schemas/execute';
import { EXECUTE_PATH } from './execute-load.js';
import { engineHeaders } from '../service/headers.js';
import type { BenchTenant } from './second-tenant.js';
import type { Unexpected } from '../rows/unexpected.js';

/** One execution that was sent alone. */
export interface Answered {
  /** By `performance.now`: when its receipt had come. */
  at: number;
  /** Milliseconds from the request to the end of the answer. */
  ms: number;
  receipt: ExecuteReceipt;
}

/** Longer than an engine waits for an admission: that shows as its 202. */
const TIMEOUT_MS = 15_000;

/** Sends one execute body; whatever comes but a receipt is unexpected, and null. */
export async function executeOnce(
  engineUrl: string,
  { apiKey, tenantId }: BenchTenant,
  body: string,
  unexpected: Unexpected,
): Promise<Answered | null> {
  const began = performance.now();
  try {
    const response = await fetch(engineUrl + EXECUTE_PATH, {
      method: 'POST',
      headers: { ...engineHeaders(apiKey, tenantId), 'Content-Type': 'application/json' },
      body,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const answer: unknown = await response.json();
    const at = performance.now();
    const { status } = response;
    if (status === 200) return { at, ms: at - began, receipt: answer as ExecuteReceipt };
    unexpected.add(`${String(status)} ${(answer as { code?: string }).code ?? ''}`.trim());
  } catch (error) {
    unexpected.add(error instanceof Error ? error.name : String(error));
  }
  return null;
}
