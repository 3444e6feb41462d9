import { describe, expect, it } from 'vitest';
import { retryAfterMs } from '#sdk/http/answers';
import { executeIntentHttp, lookupHttp, type CallOptions } from '#sdk/index';
import { sdkError } from '../fixtures/sdk-error.js';

const PROOF = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const engine = { engineUrl: 'http://engine.example', apiKey: 'key', tenantId: 'tenant' };
const intent = { intent_id: 'one', action: 'ACT' };

/** A custom `fetch` that records its URLs. */
function answering(answer: (init: RequestInit) => Promise<Response>) {
  const sent: string[] = [];
  const fetcher: typeof fetch = (url, init = {}) => {
    sent.push(url instanceof Request ? url.url : url.toString());
    return answer(init);
  };
  return { sent, fetch: fetcher };
}

const execute = (options: CallOptions): Promise<unknown> =>
  executeIntentHttp({ ...engine, ...options }, intent);

describe('SDK option timeoutMs', () => {
  it('ends a call whose fetch ignores its signal', async () => {
    const silent = answering(() => new Promise(() => undefined));
    await sdkError(execute({ fetch: silent.fetch, timeoutMs: 50 }), 'timeout');
    const retry = { attempts: 1, attemptTimeoutMs: 20 };
    await sdkError(execute({ fetch: silent.fetch, retry }), 'timeout');
    const signal = AbortSignal.timeout(20);
    await sdkError(execute({ fetch: silent.fetch, signal }), 'aborted');
  });

  it('ends a call whose response body is endless', async () => {
    const { fetch } = answering(() => Promise.resolve(new Response(new ReadableStream({}))));
    await sdkError(execute({ fetch, timeoutMs: 50 }), 'timeout');
  });

  it.each(['9999999', '999999999'])('limits the wait for a Retry-After of %s', async (after) => {
    const headers = { 'Content-Type': 'application/json', 'Retry-After': after };
    const schema_version = 'svc.runtime.admission_status/1.0';
    const body = JSON.stringify({ schema_version, proof_id: PROOF, state: 'pending' });
    const { fetch, sent } = answering(() =>
      Promise.resolve(new Response(body, { status: 202, headers })),
    );
    const error = await sdkError(execute({ fetch, timeoutMs: 100 }), 'timeout');
    expect(error.proofId).toBe(PROOF);
    expect(sent).toHaveLength(1);
  });
});

it('SDK option publicUrl > keeps its host when its path resembles another host', async () => {
  const { fetch, sent } = answering(() => Promise.resolve(new Response('', { status: 500 })));
  const options = { publicUrl: 'http://registry.example//other.example/', fetch };
  await sdkError(lookupHttp(options, { kind: 'proof', identifier: PROOF }), 'engine_failed');
  expect(sent.map((url) => new URL(url).host)).toEqual(['registry.example']);
});

describe('retryAfterMs', () => {
  const NOW = Date.parse('2026-11-20T12:00:00Z');
  const of = (headers: Record<string, string>): number | null =>
    retryAfterMs(new Headers(headers), NOW);

  it('parses seconds, and computes the time until a date', () => {
    expect(of({ 'retry-after': '0' })).toBe(0);
    expect(of({ 'retry-after': '120' })).toBe(120_000);
    expect(of({ 'retry-after': 'Fri, 20 Nov 2026 12:00:07 GMT' })).toBe(7_000);
    expect(of({ 'retry-after': 'Fri, 20 Nov 2026 11:00:00 GMT' })).toBe(0);
    expect(
      of({ 'retry-after': 'Fri, 20 Nov 2026 12:00:07 GMT', date: 'Fri, 20 Nov 2026 12:00:05 GMT' }),
    ).toBe(2_000);
  });

  it.each(['', '-1', '1.5', 'soon', '1e9', '99999999999', '2026-11-20T12:00:07Z', '7 '.repeat(2)])(
    'returns null for %j',
    (text) => {
      expect(of({ 'retry-after': text })).toBeNull();
    },
  );
});
