import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { executeRows } from '#bench/rows/execute-rows';
import type { ExecuteFound, ExecuteRound } from '#bench/singles/execute-run';
import { fairnessRows } from '#bench/rows/fairness';
import { freshnessRows } from '#bench/rows/freshness';
import { executeOnce } from '#bench/singles/single-execute';
import { steadily } from '#bench/singles/steadily';
import { Unexpected } from '#bench/rows/unexpected';
import { untilValid } from '#bench/singles/until-valid';

const round = (requests: number, ms: number, over: Partial<ExecuteRound> = {}): ExecuteRound => ({
  requests,
  seconds: 2,
  answers: { '200': requests },
  failed: 0,
  cpuSeconds: 0.2,
  latencies: [[ms, requests]],
  keptFile: '',
  cpu: { micros: { engine: 100, Postgres: 50 }, total: 150, others: 0.1 },
  ...over,
});

const found = (over: Partial<ExecuteFound> = {}): ExecuteFound => ({
  connections: 64,
  engine: [round(9_000, 10), round(8_000, 20), round(10_000, 30)],
  echo: [round(20_000, 5), round(18_000, 5), round(22_000, 5)],
  pipeline: [round(10_000, 8), round(9_000, 8), round(11_000, 8)],
  half: round(4_000, 4),
  receipts: { checked: 5, wrong: [] },
  ...over,
});

describe('the execute rows', () => {
  it('hold the middle of the rounds against the middle of the echo', () => {
    const [throughput, bound, ofBound, tail, half, cpu, faults] = executeRows(found());
    expect(throughput).toMatchObject({ value: 4_500, against: { value: 10_000 }, ratio: 0.45 });
    expect(throughput).toMatchObject({ reach: { ratio: { atLeast: 0.4 } }, ok: true });
    // What the way takes at the least, and what the service makes of that; to be shown.
    expect(bound).toMatchObject({ value: 5_000, against: { value: 10_000 }, ratio: 0.5, ok: null });
    expect(ofBound).toMatchObject({
      value: 4_500,
      against: { value: 5_000 },
      ratio: 0.9,
      ok: null,
    });
    // Of all requests of all rounds: the slowest round has more than one in a hundred.
    expect(tail).toMatchObject({
      value: 30,
      unit: 'ms',
      reach: { value: { atMost: 50 } },
      ok: true,
    });
    expect(half).toMatchObject({ value: 4, ok: null });
    expect(cpu).toMatchObject({ value: 150, against: { value: 150 }, ok: null });
    expect(faults).toMatchObject({ value: 0, ok: true });
  });

  it('miss their reach when it is missed', () => {
    const engine = [round(3_000, 60)];
    const [throughput, , , tail] = executeRows(found({ engine }));
    expect([throughput?.ok, tail?.ok]).toEqual([false, false]);
  });

  it.each<[string, Partial<ExecuteFound>, number]>([
    ['a 202', { engine: [round(10, 1, { answers: { '200': 9, '202': 1 } })] }, 1],
    ['no answer', { half: round(10, 1, { failed: 2 }) }, 2],
    ['a refusal of the bare pipeline', { pipeline: [round(9, 1, { answers: { '400': 9 } })] }, 9],
    ['a refusal of the echo', { echo: [round(10, 1, { answers: { '400': 10 } })] }, 10],
    ['a wrong receipt', { receipts: { checked: 3, wrong: ['x: wrong_effect'] } }, 1],
    ['no receipt looked at', { receipts: { checked: 0, wrong: [] } }, 1],
  ])('fail for %s', (_, over, value) => {
    expect(executeRows(found(over)).at(-1)).toMatchObject({ value, ok: false });
  });
});

const PLAN = { perSecond: 20, idle: 2, loaded: 2, items: 10_000, underWay: 20_000 };

describe('the fairness rows', () => {
  it('show the latency beside batches against the one without', () => {
    const unexpected = new Unexpected();
    const times = {
      idleMs: [10, 20],
      loadedMs: [20, 50],
      batchRate: 5_000,
      besideReadsMs: [30, 61],
      readRate: 900,
    };
    const rows = fairnessRows({ ...PLAN, ...times, unexpected });
    expect(rows[0]).toMatchObject({ value: 50, against: { value: 20 }, ratio: 2.5, ok: null });
    expect(rows[1]).toMatchObject({ value: 61, against: { value: 20 }, ok: false });
    expect(rows[2]).toMatchObject({ value: 0, ok: true });
    unexpected.add('503 queue_too_deep', 3);
    expect(fairnessRows({ ...PLAN, ...times, unexpected })[2]).toMatchObject({
      value: 3,
      ok: false,
    });
  });
});

describe('the freshness rows', () => {
  const rows = (ms: number[], unexpected = new Unexpected()) =>
    freshnessRows({ ms, fullRate: 8_000, sentRate: 4_000, unexpected });

  it('reach a second and a half in ninety-nine of a hundred, or not', () => {
    const [p99, p50, faults] = rows([...Array<number>(99).fill(700), 1_600]);
    expect([p99?.value, p50?.value]).toEqual([0.7, 0.7]);
    expect([p99?.ok, p50?.ok, faults?.ok]).toEqual([true, null, true]);
    expect(rows([...Array<number>(98).fill(700), 1_600, 1_600])[0]?.ok).toBe(false);
  });

  it('are not made of nothing', () => {
    expect(() => rows([])).toThrow(RangeError);
  });
});

describe('what was not expected', () => {
  it('is told by kind, and fails its row', () => {
    const unexpected = new Unexpected();
    unexpected.add('202');
    unexpected.add('TimeoutError', 2);
    unexpected.add('503', 0);
    expect(unexpected.row('errors', '9 requests')).toMatchObject({
      value: 3,
      ok: false,
      note: 'of 9 requests: 1 × 202; 2 × TimeoutError',
    });
  });
});

describe('work that begins steadily', () => {
  const { signal } = new AbortController();

  it('does not wait for the answers', async () => {
    const begun: number[] = [];
    let release: () => void = () => undefined;
    const last = new Promise<void>((resolve) => (release = resolve));
    // None ends before the last one has begun.
    await steadily({ perSecond: 1_000, count: 5, signal }, (n) => {
      begun.push(n);
      if (n === 4) release();
      return last;
    });
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });

  it('fails when any of it fails, and begins no more of it', async () => {
    let begun = 0;
    const work = steadily({ perSecond: 1_000, count: Infinity, signal }, () => {
      begun += 1;
      return Promise.reject(new Error('no'));
    });
    await expect(work).rejects.toThrow('no');
    expect(begun).toBeLessThan(10);
  });

  it('ends when it is told to', async () => {
    const stopping = new AbortController();
    const pace = { perSecond: 1_000, count: Infinity, signal: stopping.signal };
    const work = steadily(pace, () => {
      stopping.abort();
      return Promise.resolve();
    });
    await expect(work).rejects.toMatchObject({ name: 'AbortError' });
  });
});

describe('asking over HTTP', () => {
  let server: Server | undefined;
  afterEach(() => {
    server?.close();
    server?.closeAllConnections();
  });

  /** A server that gives these answers in turn, and the last one again and again. */
  async function answering(...answers: [status: number, body: object][]): Promise<string> {
    server = createServer((_, res) => {
      const [status, body] = (answers.length > 1 ? answers.shift() : answers[0]) ?? [500, {}];
      res.writeHead(status).end(JSON.stringify(body));
    });
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${String((server?.address() as AddressInfo).port)}`;
  }
  const verdict = (status: string) => ({ verification: { verification_status: status } });

  it('follows a proof until it is valid in public', async () => {
    const unexpected = new Unexpected();
    const unknown = [404, verdict('NOT_FOUND')] as [number, object];
    const url = await answering(unknown, unknown, [200, verdict('VALID')]);
    expect(await untilValid(url, 'id', unexpected)).not.toBeNull();
    expect(unexpected.row('none', '').value).toBe(0);
  });

  it.each<[number, string]>([
    [503, ''],
    [200, 'REVOKED'],
  ])('does not take %i %s for a verdict that is still to come', async (status, said) => {
    const unexpected = new Unexpected();
    const url = await answering([status, verdict(said)]);
    expect(await untilValid(url, 'id', unexpected)).toBeNull();
    expect(unexpected.row('one', '').note).toContain(`lookup ${String(status)} ${said}`);
  });

  it('takes nothing but a receipt for one', async () => {
    const unexpected = new Unexpected();
    const tenant = { tenantId: 'acme', apiKey: 'key' };
    const url = await answering(
      [202, {}],
      [403, { code: 'policy_denied' }],
      [200, { status: 'ADMITTED' }],
    );
    expect(await executeOnce(url, tenant, '{}', unexpected)).toBeNull();
    expect(await executeOnce(url, tenant, '{}', unexpected)).toBeNull();
    expect(await executeOnce(url, tenant, '{}', unexpected)).toMatchObject({
      receipt: { status: 'ADMITTED' },
    });
    expect(await executeOnce('http://127.0.0.1:1', tenant, '{}', unexpected)).toBeNull();
    const { value, note } = unexpected.row('three', '');
    expect(value).toBe(3);
    expect(note).toContain('1 × 202; 1 × 403 policy_denied');
  });
});
