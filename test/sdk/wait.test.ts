import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { PublicServer } from '#api/public/server';
import { lookupHttp, waitForVerdictHttp, type PublicOptions } from '#sdk/index';
import { breakNetwork, type BrokenNetwork } from '../fixtures/broken-network.js';
import { listenAs } from '../fixtures/public-servers.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { FAST } from '../fixtures/sdk-world.js';
import { proofIdAt, TestSnapshot } from '../fixtures/snapshot.js';

const UNKNOWN = { proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' };

const snapshot = new TestSnapshot();
const { registry } = snapshot;
let publicServer: PublicServer;
let serverUrl: string;
let network: BrokenNetwork;
let options: PublicOptions;

async function publish(): Promise<void> {
  registry.verify();
  await snapshot.publishOnce();
  await publicServer.poller.refresh();
}

beforeAll(async () => {
  publicServer = snapshot.publicServer();
  await publish();
  serverUrl = (await listenAs(snapshot, publicServer.handler)).url;
});
beforeEach(async () => {
  network = await breakNetwork(serverUrl);
  options = { publicUrl: network.url, retry: FAST };
});
// A request that the client aborted can still arrive: on a shared network it would use up a fault
// of the next test.
afterEach(() => network.close());
afterAll(() => snapshot.close());

describe('lookupHttp with wait', () => {
  const newId = () =>
    ({ kind: 'proof', identifier: proofIdAt(snapshot.clock.now(), 'never published') }) as const;

  it.each(['is newer than', 'has no verdict in'])(
    'returns the verdict on a proof that %s the first snapshot',
    async (what) => {
      const identifier = registry.addProof();
      if (what !== 'is newer than') {
        registry.verify(registry.size - 1);
        await snapshot.publishOnce();
        await publicServer.poller.refresh();
      }
      const waiting = lookupHttp(options, { kind: 'proof', identifier, wait: true });
      await expect.poll(() => network.seen.length).toBe(1);
      await publish();
      expect(await waiting).toMatchObject({ verification_status: 'VALID', retryAfterMs: null });
    },
  );

  it('returns NOT_FOUND for an old identifier, and after the timeout', async () => {
    const old = { kind: 'proof', identifier: UNKNOWN.proof_id, wait: true } as const;
    expect(await lookupHttp(options, old)).toMatchObject({
      verification_status: 'NOT_FOUND',
      retryAfterMs: null,
    });
    expect(
      await lookupHttp({ ...options, timeoutMs: 500 }, { ...newId(), wait: true }),
    ).toMatchObject({ verification_status: 'NOT_FOUND', retryAfterMs: 1000 });
    expect(await lookupHttp(options, newId())).toMatchObject({ verification_status: 'NOT_FOUND' });
    expect(network.seen).toHaveLength(3);
  });

  const withRetryAfter =
    (seconds: string): typeof fetch =>
    async (url, init) => {
      const { status, headers, body } = await fetch(url, init);
      const changed = { ...Object.fromEntries(headers), 'retry-after': seconds };
      return new Response(body, { status, headers: changed });
    };

  it('returns a resolved answer at once, even with a Retry-After', async () => {
    const identifier = registry.addProof();
    await publish();
    const call = { ...options, fetch: withRetryAfter('0'), timeoutMs: 2_000 };
    expect(await lookupHttp(call, { kind: 'proof', identifier, wait: true })).toMatchObject({
      verification_status: 'VALID',
      retryAfterMs: null,
    });
    expect(network.seen).toHaveLength(1);
  });

  it.each([
    ['40', 1],
    ['0', 4],
  ])('after a Retry-After of %s, pauses until the caller aborts', async (seconds, requests) => {
    const stopping = new AbortController();
    const limits = { timeoutMs: 60_000, signal: stopping.signal };
    const call = { ...options, fetch: withRetryAfter(seconds), ...limits };
    const waiting = lookupHttp(call, { ...newId(), wait: true });
    setTimeout(() => stopping.abort(), 700);
    await sdkError(waiting, 'aborted');
    expect(network.seen.length).toBeLessThanOrEqual(requests);
  });
});

describe('waitForVerdictHttp', () => {
  it('returns the verdict once the proof is published, despite outages', async () => {
    const fresh = registry.addProof();
    const outages = Array.from({ length: 7 }, () => ({ kind: 'answer', status: 503 }) as const);
    network.faults.push(...outages, { kind: 'lost' });
    const waiting = waitForVerdictHttp(options, { proof_id: fresh });
    await expect.poll(() => network.seen.length).toBeGreaterThan(8);
    await publish();
    const found = await waiting;
    expect(found).toMatchObject({ verification_status: 'VALID', can_assert_validity: true });
  });

  it('keeps polling while a published proof is not verified', async () => {
    const unverified = registry.addProof();
    registry.verify();
    registry.recordVerdict(unverified, { outcome: 'fail' });
    await publish();
    const waiting = waitForVerdictHttp(options, { proof_id: unverified });
    await expect.poll(() => network.seen.length).toBeGreaterThan(1);
    registry.recordVerdict(unverified, { outcome: 'pass' });
    await publish();
    expect(await waiting).toMatchObject({ verification_status: 'VALID' });
  });

  it('throws timeout with the status of the last response', async () => {
    const brief = { ...options, timeoutMs: 700 };
    const none = await sdkError(waitForVerdictHttp(brief, UNKNOWN), 'timeout');
    expect(none.message).toContain('NOT_FOUND');
    const outages = Array.from({ length: 99 }, () => ({ kind: 'answer', status: 503 }) as const);
    network.faults.push(...outages);
    const error = await sdkError(waitForVerdictHttp(brief, UNKNOWN), 'timeout');
    expect(error.message).toContain('503');
  });

  it('throws at once for an unexpected response and for an aborted signal', async () => {
    network.faults.push({ kind: 'answer', status: 200 });
    await sdkError(waitForVerdictHttp(options, UNKNOWN), 'unexpected_response');
    const stopping = new AbortController();
    const waiting = waitForVerdictHttp({ ...options, signal: stopping.signal }, UNKNOWN);
    waiting.catch(() => undefined);
    setTimeout(() => stopping.abort(), 100);
    await sdkError(waiting, 'aborted');
  });
});
