import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { treeSize } from '#sql/log/log';
import { canonicalHash, executeIntentHttp, readProofHttp } from '#sdk/index';
import { breakNetwork, type Fault } from '../fixtures/broken-network.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { FAST, intent, openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

let world: SdkWorld;
beforeAll(async () => {
  world = await openSdkWorld();
});
afterEach(() => {
  world.network.seen.length = 0;
  world.network.faults.length = 0;
});
afterAll(() => world.close());

function meeting(...faults: Fault[]): void {
  world.network.faults.push(...faults);
}

const answering = (status: number, headers?: Record<string, string>): Fault => ({
  kind: 'answer',
  status,
  ...(headers && { headers }),
});

describe('an answer that gets lost', () => {
  const LOST: Fault[] = [
    { kind: 'lost' },
    { kind: 'unanswered' },
    { kind: 'cut' },
    answering(502),
    answering(503),
    answering(504),
    answering(429),
  ];
  it.each(LOST)(
    'is asked for again, and one admission comes of it: $kind $status',
    async (fault) => {
      const before = await treeSize(world.db.sql);
      meeting(fault);
      const input = intent();
      const receipt = await executeIntentHttp(world.shaky, input);
      const [first, second] = world.network.seen;
      expect(world.network.seen).toHaveLength(2);
      expect(second?.body).toBe(first?.body);
      expect(second?.headers['x-svc-idempotency-key']).toBe(receipt.request_hash);
      expect(await treeSize(world.db.sql)).toBe(before + 1);
      expect(await executeIntentHttp(world.options, input)).toEqual(receipt);
    },
  );

  it('is given up after so many requests, with the last cause', async () => {
    meeting({ kind: 'lost' }, { kind: 'lost' }, answering(503));
    const options = { ...world.shaky, retry: { ...FAST, attempts: 3 } };
    const error = await sdkError(executeIntentHttp(options, intent()), 'unavailable');
    expect(error).toMatchObject({ status: 503, retryable: true });
    expect(world.network.seen).toHaveLength(3);
  });

  it('is not asked for again when the caller wants none repeated', async () => {
    meeting({ kind: 'lost' });
    const options = { ...world.shaky, retry: { attempts: 1 } };
    const error = await sdkError(executeIntentHttp(options, intent()), 'network');
    expect(error.retryable).toBe(true);
    expect(error.cause).toBeInstanceOf(Error);
    expect(world.network.seen).toHaveLength(1);
  });
});

describe('a problem document', () => {
  const problem = {
    type: 'urn:svc:problem:lane_locked',
    title: 'a',
    detail: 'b',
    code: 'lane_locked',
  };
  const saying = (status: number, body: object): Fault => ({
    kind: 'answer',
    status,
    headers: { 'Content-Type': 'application/problem+json' },
    body: JSON.stringify(body),
  });

  it('is believed when it speaks of the status that it came with', async () => {
    meeting(saying(423, { ...problem, status: 423, request_id: 'r-1' }));
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'lane_locked');
    expect(error.problem).toMatchObject({ code: 'lane_locked', request_id: 'r-1' });
    meeting(saying(423, { ...problem, status: 403 }));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    meeting(saying(423, { status: 423 }));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
  });
});

describe('what would be answered the same again', () => {
  const cases: [number, string][] = [
    [400, 'unexpected_response'],
    [401, 'unexpected_response'],
    [403, 'unexpected_response'],
    [404, 'unexpected_response'],
    [409, 'unexpected_response'],
    [500, 'engine_failed'],
  ];
  it.each(cases)('is not asked for again: %i', async (status, code) => {
    meeting(answering(status));
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), code as never);
    expect(error.status).toBe(status);
    expect(world.network.seen).toHaveLength(1);
  });
});

describe('Retry-After', () => {
  const waited = (): number => {
    const [first, second] = world.network.seen;
    return (second?.at ?? 0) - (first?.at ?? 0);
  };

  it('is waited for when it is seconds', async () => {
    meeting(answering(503, { 'Retry-After': '1' }));
    await executeIntentHttp(world.shaky, intent());
    expect(waited()).toBeGreaterThan(990);
  });

  it("is waited for when it is a date, by the service's own clock", async () => {
    const there = Date.parse('2031-01-01T00:00:00Z');
    const date = (ms: number): string => new Date(there + ms).toUTCString();
    meeting(answering(429, { Date: date(0), 'Retry-After': date(1_000) }));
    await executeIntentHttp(world.shaky, intent());
    expect(waited()).toBeGreaterThan(990);
    expect(waited()).toBeLessThan(5_000);
  });

  it('is not waited for when there is none that can be read', async () => {
    meeting(answering(503, { 'Retry-After': 'soon' }));
    await executeIntentHttp(world.shaky, intent());
    expect(waited()).toBeLessThan(900);
  });

  it('ends the call at once when it asks for more than is left', async () => {
    meeting(answering(429, { 'Retry-After': '3600' }));
    const began = performance.now();
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'rate_limited');
    expect(performance.now() - began).toBeLessThan(2_000);
    expect(error.retryAfterMs).toBe(3_600_000);
    expect(world.network.seen).toHaveLength(1);
  });
});

describe('time', () => {
  it('of one request over, it is made again', async () => {
    meeting({ kind: 'silent' });
    const options = { ...world.shaky, retry: { ...FAST, attemptTimeoutMs: 1_000 } };
    await executeIntentHttp(options, intent());
    expect(world.network.seen.length).toBeGreaterThanOrEqual(2);
  });

  it('of one request holds for its whole answer', async () => {
    meeting({ kind: 'late', ms: 700 });
    const options = { ...world.shaky, retry: { ...FAST, attemptTimeoutMs: 200, attempts: 1 } };
    await sdkError(executeIntentHttp(options, intent()), 'timeout');
  });

  it('of the call over, nothing more is asked', async () => {
    meeting({ kind: 'silent' }, { kind: 'silent' });
    const options = { ...world.shaky, timeoutMs: 1_000 };
    const began = performance.now();
    const error = await sdkError(executeIntentHttp(options, intent()), 'timeout');
    expect(performance.now() - began).toBeLessThan(5_000);
    expect(error.retryable).toBe(true);
    expect(world.network.seen).toHaveLength(1);
  });
});

describe('a signal', () => {
  it('ends a request that is under way', async () => {
    meeting({ kind: 'silent' });
    const stopping = new AbortController();
    const call = executeIntentHttp({ ...world.shaky, signal: stopping.signal }, intent());
    call.catch(() => undefined);
    await expect.poll(() => world.network.seen.length).toBe(1);
    const reason = new Error('enough');
    stopping.abort(reason);
    const error = await sdkError(call, 'aborted');
    expect(error).toMatchObject({ cause: reason, retryable: false });
    expect(world.network.seen).toHaveLength(1);
  });

  it('ends the waiting between two requests', async () => {
    meeting(answering(503, { 'Retry-After': '20' }));
    const stopping = new AbortController();
    const call = executeIntentHttp({ ...world.shaky, signal: stopping.signal }, intent());
    call.catch(() => undefined);
    await expect.poll(() => world.network.seen.length).toBe(1);
    const began = performance.now();
    setTimeout(() => stopping.abort(), 50);
    await sdkError(call, 'aborted');
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  it('that has fired already lets nothing be sent', async () => {
    const signal = AbortSignal.abort();
    await sdkError(executeIntentHttp({ ...world.shaky, signal }, intent()), 'aborted');
    expect(world.network.seen).toEqual([]);
  });

  it('is let go of when the call is over', async () => {
    const { signal } = new AbortController();
    let listeners = 0;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...listening: Parameters<typeof add>) => {
      listeners += 1;
      add(...listening);
    };
    signal.removeEventListener = (...listening: Parameters<typeof remove>) => {
      listeners -= 1;
      remove(...listening);
    };
    meeting({ kind: 'lost' });
    await executeIntentHttp({ ...world.shaky, signal }, intent());
    expect(listeners).toBe(0);
  });
});

describe('a 200 that is no receipt for the request', () => {
  const ok = (body: string): Fault => ({
    kind: 'answer',
    status: 200,
    headers: { 'Content-Type': 'application/json' },
    body,
  });
  const changed = (change: (receipt: Record<string, unknown>) => unknown): Fault => ({
    kind: 'changed',
    change: (body) => JSON.stringify(change(JSON.parse(body) as Record<string, unknown>)),
  });
  const flipped = (text: unknown): string =>
    String(text).replace(/.$/, (last) => (last === '0' ? '1' : '0'));

  const cases: [string, Fault][] = [
    ['a page', answering(200)],
    ['nothing', ok('')],
    ['half of it', ok('{"schema_version":"svc.runtime.intent_ex')],
    ['null', ok('null')],
    ['an empty document', ok('{}')],
    ['a member twice', { kind: 'changed', change: (body) => body.replace('{', '{"status":"X",') }],
    ['a member more', changed((receipt) => ({ ...receipt, more: 1 }))],
    ['a status that is none', changed((receipt) => ({ ...receipt, status: 'OK' }))],
    ['a denial', changed((receipt) => ({ ...receipt, status: 'DENIED' }))],
    [
      'the hash of another request',
      changed((receipt) => ({ ...receipt, request_hash: flipped(receipt['request_hash']) })),
    ],
    [
      'another proof',
      changed((receipt) => ({
        ...receipt,
        registry_proof_id: flipped(receipt['registry_proof_id']),
      })),
    ],
    ['a denial whose hash is right', changed(denying)],
  ];
  it.each(cases)('is refused: %s', async (_what, fault) => {
    meeting(fault);
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    expect(error).toMatchObject({ status: 200, retryable: false });
    expect(world.network.seen).toHaveLength(1);
  });

  it('is refused when it does not say that it is JSON', async () => {
    const input = intent();
    const receipt = await executeIntentHttp(world.options, input);
    const headers = { 'Content-Type': 'text/plain' };
    meeting({ kind: 'answer', status: 200, headers, body: JSON.stringify(receipt) });
    await sdkError(executeIntentHttp(world.shaky, input), 'unexpected_response');
    meeting(ok(JSON.stringify(receipt)));
    expect(await executeIntentHttp(world.shaky, input)).toEqual(receipt);
  });

  it('is refused when it is the receipt of another call', async () => {
    const other = await executeIntentHttp(world.options, intent());
    meeting(ok(JSON.stringify(other)));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
  });

  it('is refused when it has no end', async () => {
    meeting(ok(' '.repeat(17 * 1024 * 1024)));
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    expect(error.message).toContain('longer than');
  });

  it('is refused when it is about another proof', async () => {
    const [one, two] = [
      await executeIntentHttp(world.options, intent()),
      await executeIntentHttp(world.options, intent()),
    ];
    const view = await readProofHttp(world.options, { proof_id: one.registry_proof_id });
    meeting(ok(JSON.stringify(view.response)));
    const call = readProofHttp(world.shaky, { proof_id: two.registry_proof_id });
    await sdkError(call, 'unexpected_response');
  });
});

describe('a denial', () => {
  it('without its own receipt is not one, nor an admission', async () => {
    meeting({
      kind: 'changed',
      change: (body) => body.replace('"status":"DENIED"', '"status":"ADMITTED"'),
    });
    const input = intent({ action: 'DELETE_AUDIT_LOG' });
    const error = await sdkError(executeIntentHttp(world.shaky, input), 'unexpected_response');
    expect(error.denial).toBeUndefined();
  });
});

describe('an answer that leads elsewhere', () => {
  it.each([301, 302, 307, 308])('is not followed: %i', async (status) => {
    const elsewhere = await breakNetwork(world.engine.url);
    try {
      meeting(answering(status, { Location: `${elsewhere.url}/v1/intents/execute` }));
      await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
      expect(elsewhere.seen).toEqual([]);
    } finally {
      await elsewhere.close();
    }
  });

  it('is not followed as the Location of a 202', async () => {
    const elsewhere = await breakNetwork(world.engine.url);
    const proofId = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    const pending = { schema_version: 'svc.runtime.admission_status/1.0', state: 'pending' };
    const accepted = (location: string): Fault => ({
      kind: 'answer',
      status: 202,
      headers: { 'Content-Type': 'application/json', Location: location },
      body: JSON.stringify({ ...pending, proof_id: proofId }),
    });
    try {
      meeting(accepted(`${elsewhere.url}/v1/elsewhere`));
      await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
      // The path that it should have, at another origin: asked for at this one all the same.
      meeting(accepted(`${elsewhere.url}/v1/admissions/${proofId}`));
      await sdkError(executeIntentHttp(world.shaky, intent()), 'not_found');
      expect(elsewhere.seen).toEqual([]);
    } finally {
      await elsewhere.close();
    }
  });
});

describe('an injected fetch', () => {
  it('is the only way out', async () => {
    const asked: string[] = [];
    const injected: typeof fetch = (input, init) => {
      asked.push(new Request(input, init).url);
      return fetch(input, init);
    };
    await executeIntentHttp({ ...world.shaky, fetch: injected }, intent());
    expect(asked).toEqual([`${world.network.url}/v1/intents/execute`]);
  });
});

/** What an engine that said no with a 200 would answer. */
function denying(receipt: Record<string, unknown>): unknown {
  const denied = { ...receipt, status: 'DENIED' } as Record<string, string>;
  delete denied['response_hash'];
  return { ...denied, response_hash: canonicalHash(denied) };
}
