import type { Answer } from '../http/attempt.js';
import type { Deadline } from '../http/deadline.js';
import { openExchange } from '../http/exchange.js';
import { refusal } from '../http/refusal.js';
import { baseOf, headerValue, type EngineOptions } from '../options.js';

/** More than any one document of the engine has. */
const ANSWER_MAX = 16 * 1024 * 1024;

export interface EngineRequest {
  method: 'GET' | 'POST';
  /** From `/v1` on, of characters that need no escape. */
  path: string;
  query?: Record<string, string>;
  body?: Uint8Array;
  /** Media type of the body; `application/json`. */
  type?: string;
  /** Media type of the answer; `application/json`. */
  accept?: string;
  idempotencyKey?: string;
}

/** The engine as one tenant reaches it. */
export interface Engine {
  tenantId: string;
  /** The answer, whatever its status, after all repetitions. */
  ask(request: EngineRequest, deadline: Deadline): Promise<Answer>;
  /** The same when nothing but 200 will do; else what the answer is as an error. */
  read(request: EngineRequest, deadline: Deadline): Promise<Answer>;
}

/** Checks the options, and connects to nothing. */
export function openEngine(options: EngineOptions): Engine {
  const base = baseOf('engineUrl', options.engineUrl);
  const headers = {
    'X-Svc-Api-Key': headerValue('apiKey', options.apiKey),
    'X-Svc-Tenant-Id': headerValue('tenantId', options.tenantId),
    'svc-api-version': 'v1',
  };
  const exchange = openExchange(options);
  const ask: Engine['ask'] = (request, deadline) => {
    const { method, path, query = {}, body, idempotencyKey } = request;
    const url = new URL(path.slice(1), base);
    url.search = new URLSearchParams(query).toString();
    const sent = {
      ...headers,
      Accept: request.accept ?? 'application/json',
      ...(body !== undefined && { 'Content-Type': request.type ?? 'application/json' }),
      ...(idempotencyKey !== undefined && { 'X-Svc-Idempotency-Key': idempotencyKey }),
    };
    return exchange(
      { method, url, headers: sent, maxBytes: ANSWER_MAX, ...(body !== undefined && { body }) },
      deadline,
    );
  };
  return {
    tenantId: options.tenantId,
    ask,
    read: async (request, deadline) => {
      const answer = await ask(request, deadline);
      if (answer.status !== 200) throw refusal(answer);
      return answer;
    },
  };
}
