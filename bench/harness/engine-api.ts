import { once } from 'node:events';
import { Agent, request, type IncomingMessage } from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecuteReceipt } from '#protocol/schemas/admission';
import { executeBody, newRun, requestAt, type ItemSource } from './items.js';
import type { UnexpectedAnswers } from './scenario.js';

export const EXECUTE_PATH = '/v1/intents/execute';
export const AGENT_PATH = '/v1/agent/admissions';

export interface Credential {
  tenantId: string;
  apiKey: string;
}

export function engineHeaders({ apiKey, tenantId }: Credential): Record<string, string> {
  return { 'X-Svc-Api-Key': apiKey, 'X-Svc-Tenant-Id': tenantId, 'svc-api-version': 'v1' };
}

export type Answered = NonNullable<Awaited<ReturnType<typeof admitOnce>>>;

/** Longer than the engine waits for an admission, so that a late admission shows as a 202. */
export const ADMISSION_TIMEOUT_MS = 15_000;

/** Node's HTTP client, because `fetch` takes more than twice the CPU time on the machine of the service. */
const agent = new Agent({ keepAlive: true });

/**
 * Sends one body. Anything but a receipt counts as unexpected and returns null.
 *
 * @param due when the request is due, from which its latency counts; times are by `performance.now`
 */
export async function admitOnce(
  url: string,
  credential: Credential,
  body: string,
  unexpected: UnexpectedAnswers,
  due = performance.now(),
) {
  try {
    const sending = request(url, {
      method: 'POST',
      headers: { ...engineHeaders(credential), 'Content-Type': 'application/json' },
      agent,
      signal: AbortSignal.timeout(ADMISSION_TIMEOUT_MS),
    }).end(body);
    const [response] = (await once(sending, 'response')) as [IncomingMessage];
    const answer: unknown = await json(response);
    const at = performance.now();
    const { statusCode: status } = response;
    if (status === 200) return { at, ms: at - due, due, receipt: answer as ExecuteReceipt };
    unexpected.add(`${String(status)} ${(answer as { code?: string }).code ?? ''}`.trim());
  } catch (error) {
    unexpected.add(error instanceof Error ? error.name : String(error));
  }
  return null;
}

export type BatchAnswer =
  { batchId: string } | { batchId: null; status: number; code: string; retryAfterSeconds: number };

export function batchBody(source: ItemSource, first: number, items: number): Buffer {
  // Writes into one buffer, so that the client does not become the bottleneck.
  const body = Buffer.allocUnsafe(items * LONGEST_LINE);
  let at = 0;
  for (let n = first; n < first + items; n += 1) {
    at += body.write(`${JSON.stringify(requestAt(source, n))}\n`, at, 'latin1');
  }
  return body.subarray(0, at);
}

const LONGEST_LINE = 1_024;

export async function sendBatch(
  engineUrl: string,
  credential: Credential,
  body: Buffer,
): Promise<BatchAnswer> {
  const response = await fetch(`${engineUrl}/v1/batches`, {
    method: 'POST',
    headers: { ...engineHeaders(credential), 'Content-Type': 'application/x-ndjson' },
    body: body as Uint8Array<ArrayBuffer>,
  });
  const answer = (await response.json()) as { batch_id?: string; code?: string };
  const { status, headers } = response;
  if (status === 202 && answer.batch_id !== undefined) return { batchId: answer.batch_id };
  const retryAfterSeconds = Number(headers.get('retry-after') ?? 1);
  return { batchId: null, status, code: answer.code ?? '', retryAfterSeconds };
}

/**
 * Sends execute bodies, of each tenant in rotation, at a fixed rate by the clock, so that slow responses
 * do not lower the load (open loop). Calls `onReceipt` for each receipt. Timers send a request up to 1 ms
 * late, never early. Returns when all work has ended.
 *
 * @throws the error of any `onReceipt`, or the signal's reason
 */
export async function executeAtRate(
  engineUrl: string,
  options: {
    credentials: readonly Credential[];
    perSecond: number;
    count: number;
    unexpected: UnexpectedAnswers;
    signal: AbortSignal;
  },
  onReceipt: (answered: Answered, body: string) => Promise<void> | void,
): Promise<void> {
  const { credentials, perSecond, count, unexpected, signal } = options;
  const run = newRun();
  const send = async (n: number, due: number): Promise<void> => {
    const credential = credentials[n % credentials.length]!;
    const body = executeBody({ tenantId: credential.tenantId, run }, n);
    const answered = await admitOnce(engineUrl + EXECUTE_PATH, credential, body, unexpected, due);
    if (answered !== null) await onReceipt(answered, body);
  };
  const began = performance.now();
  const started: Promise<void>[] = [];
  const failed = new AbortController();
  for (let n = 0; n < count && !failed.signal.aborted; n += 1) {
    const due = began + (n * 1000) / perSecond;
    const early = due - performance.now();
    if (early > 0) await sleep(Math.ceil(early), undefined, { signal });
    const one = send(n, due);
    one.catch(() => failed.abort());
    started.push(one);
  }
  await Promise.all(started);
}
