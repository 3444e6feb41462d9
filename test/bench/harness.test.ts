import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test as base } from 'vitest';
import { reportResults, runCommand, UsageError } from '#bench/harness/command';
import { cpuSecondsOf } from '#bench/harness/cpu';
import { atRate, executeOnce } from '#bench/harness/engine-api';
import { untilValid } from '#bench/harness/public-api';
import { runScenarios } from '#bench/harness/run';
import {
  resultOf,
  UnexpectedAnswers,
  type Measured,
  type Result,
  type Scenario,
} from '#bench/harness/scenario';
import { median, pairedRatio, percentile, spread } from '#bench/harness/statistics';
import { OperatorError } from '#runtime/process/operator-error';
import { skipsRedis, withoutRedis } from '../fixtures/redis.js';

const test = base.extend<{ dir: string }>({
  dir: async ({}, use) => {
    const dir = await mkdtemp(join(tmpdir(), 'svc-bench-'));
    await use(dir);
    await rm(dir, { recursive: true, force: true });
  },
});

const measured = { name: 'lookups', value: 90, unit: 'answers/s' };
const peer = { what: 'a file server', value: 100 };

describe('statistics', () => {
  test('percentile > returns the nearest rank, and rejects empty sets and other percents', () => {
    expect([5, 30, 40, 50, 100].map((p) => percentile([35, 20, 15, 40, 50], p))).toEqual([
      15, 20, 20, 35, 50,
    ]);
    expect(percentile([7], 99)).toBe(7);
    expect(() => percentile([], 50)).toThrow(RangeError);
    for (const percent of [0, 100.1, NaN]) {
      expect(() => percentile([1], percent)).toThrow(RangeError);
    }
  });

  test('median > returns the middle, and NaN when a value is missing', () => {
    expect(median([9, 1, 5])).toBe(5);
    expect(median([9, 1, 5, 7])).toBe(6);
    expect(median([1, NaN, 2])).toBeNaN();
    expect(() => median([])).toThrow(RangeError);
    expect(pairedRatio([4, 9, 8], [2, 3, 8])).toBe(2);
    expect(pairedRatio([4, 9], [2])).toBeNaN();
    expect(spread([9.04, 1, 5], 1)).toBe('1.0–9.0');
  });
});

describe('resultOf', () => {
  test.for<[string, NonNullable<Measured['target']> | null, boolean | null]>([
    ['no target', null, null],
    ['a ratio at the limit', { ratio: { atLeast: 0.9 } }, true],
    ['a ratio below', { ratio: { atLeast: 0.91 } }, false],
    ['a value within both limits', { value: { atLeast: 90, atMost: 90 } }, true],
    ['a met ratio and a missed value', { ratio: { atLeast: 0.5 }, value: { atLeast: 91 } }, false],
    ['a missed ratio and a met value', { ratio: { atLeast: 1 }, value: { atLeast: 1 } }, false],
  ])('resultOf > decides a target with %s', ([, target, ok]) => {
    expect(resultOf({ ...measured, against: peer, target }).ok).toBe(ok);
  });

  test('resultOf > misses a target with a figure that is missing or not finite', () => {
    const target = { ratio: { atLeast: 0 } };
    const without = { ...measured, target };
    expect(resultOf(without).ok).toBe(false);
    expect(resultOf({ ...without, ratio: NaN }).ok).toBe(false);
    expect(resultOf({ ...without, against: { what: 'nothing', value: 0 } }).ok).toBe(false);
    expect(resultOf({ ...measured, value: NaN, target: { value: { atMost: 1 } } }).ok).toBe(false);
  });

  test('UnexpectedAnswers > fail their result and list the kinds', () => {
    const unexpected = new UnexpectedAnswers();
    expect(unexpected.result('errors', '9 requests')).toMatchObject({ value: 0, ok: true });
    unexpected.add('202');
    unexpected.add('TimeoutError', 2);
    unexpected.add('503', 0);
    expect(unexpected.result('errors', '9 requests')).toMatchObject({
      value: 3,
      ok: false,
      note: 'of 9 requests: 1 × 202; 2 × TimeoutError',
    });
  });
});

describe('runCommand', () => {
  afterEach(() => (process.exitCode = undefined));
  const met = resultOf({ ...measured, target: { value: { atLeast: 1 } } });
  const missed = resultOf({ ...measured, target: { value: { atLeast: 91 } } });

  test.for<[string, Result[], number | undefined]>([
    ['0 when no target is missed', [met, resultOf(measured)], undefined],
    ['1 when one target is missed', [met, missed], 1],
  ])('runCommand > exits with %s', async ([, results, code], { dir }) => {
    await runCommand('', () => reportResults(join(dir, 'results.json'), results));
    expect(process.exitCode).toBe(code);
  });

  test('runCommand > exits with 1 for a failure and with 2 for wrong usage', async () => {
    await runCommand('', () => Promise.reject(new OperatorError('no disk')));
    expect(process.exitCode).toBe(1);
    await runCommand('', () => Promise.reject(new UsageError('no number')));
    expect(process.exitCode).toBe(2);
    await expect(runCommand('', () => Promise.reject(new Error('bug')))).rejects.toThrow('bug');
    expect(process.exitCode).toBe(1);
  });

  test('reportResults > replaces the file with a plain list', async ({ dir }) => {
    const file = join(dir, 'results', 'quick.json');
    await reportResults(file, [met]);
    await reportResults(file, [met, missed]);
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual([met, missed]);
    expect(await readdir(join(dir, 'results'))).toEqual(['quick.json']);
  });
});

describe('runScenarios', () => {
  const figure = resultOf(measured);
  const scenario = (name: string, run: Scenario['run']): Scenario => ({ name, run });
  const good = scenario('good', () => Promise.resolve([figure]));
  const run = (
    dir: string,
    all: Scenario[],
    { only, signal = new AbortController().signal }: { only?: string[]; signal?: AbortSignal } = {},
  ) => runScenarios(all, { quick: true, proofs: 1, only, dir, signal });

  test('runScenarios > rejects an unknown name before it starts anything', async ({ dir }) => {
    const running = run(join(dir, 'never'), [good], { only: ['goood'] });
    await expect(running).rejects.toThrow('Unknown scenario: goood. Scenarios: good');
    expect(await readdir(dir)).toEqual([]);
  });

  describe.skipIf(skipsRedis)(`with Redis${withoutRedis}`, () => {
    test('runScenarios > reports a scenario that fails or measures nothing as missed', async ({
      dir,
    }) => {
      const results = await run(dir, [
        scenario('bad', () => Promise.reject(new Error('no disk'))),
        scenario('empty', () => Promise.resolve([])),
        good,
      ]);
      expect(results.map(({ name, ok, note }) => [name, ok, note])).toEqual([
        ['bad', false, 'failed: no disk'],
        ['empty', false, 'failed: the scenario returned no results'],
        ['lookups', null, undefined],
      ]);
    });

    test('runScenarios > stops without results when it is interrupted', async ({ dir }) => {
      const stopping = new AbortController();
      const interrupting = scenario('first', ({ signal }) => {
        stopping.abort(new Error('interrupted'));
        return Promise.reject(signal.reason as Error);
      });
      const running = run(dir, [interrupting, good], { signal: stopping.signal });
      await expect(running).rejects.toThrow('interrupted');
    });
  });
});

describe('load', () => {
  const { signal } = new AbortController();

  test('atRate > starts work by the clock, not by the answers', async () => {
    const started: number[] = [];
    let release: () => void = () => undefined;
    const last = new Promise<void>((resolve) => (release = resolve));
    // No work ends before the last one has started.
    await atRate({ perSecond: 1_000, count: 5, signal }, (n) => {
      started.push(n);
      if (n === 4) release();
      return last;
    });
    expect(started).toEqual([0, 1, 2, 3, 4]);
  });

  test.runIf(process.platform === 'linux')('cpuSecondsOf > grows while a process works', () => {
    // The parent of this process: one that is not measured by `process.cpuUsage`.
    const before = cpuSecondsOf(process.ppid);
    const until = performance.now() + 20;
    while (performance.now() < until);
    expect(cpuSecondsOf(process.ppid)).toBeGreaterThan(before);
    expect(cpuSecondsOf(2 ** 30)).toBe(0);
  });

  let server: Server | undefined;
  afterEach(() => {
    server?.close();
    server?.closeAllConnections();
  });

  /** Serves these answers in order, and the last one forever. */
  async function serveAnswers(...answers: [status: number, body: object][]): Promise<string> {
    server = createServer((_, res) => {
      const [status, body] = (answers.length > 1 ? answers.shift() : answers[0]) ?? [500, {}];
      res.writeHead(status).end(JSON.stringify(body));
    });
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${String((server?.address() as AddressInfo).port)}`;
  }
  const verdict = (status: string) => ({ verification: { verification_status: status } });

  test('untilValid > repeats a lookup until the verdict is VALID', async () => {
    const unexpected = new UnexpectedAnswers();
    const url = await serveAnswers([404, verdict('NOT_FOUND')], [200, verdict('VALID')]);
    expect(await untilValid(url, 'id', unexpected)).not.toBeNull();
    expect(unexpected.result('', '').value).toBe(0);
  });

  test.for<[number, string]>([
    [503, ''],
    [200, 'REVOKED'],
  ])('untilValid > counts %i %s as unexpected', async ([status, name]) => {
    const unexpected = new UnexpectedAnswers();
    const url = await serveAnswers([status, verdict(name)]);
    expect(await untilValid(url, 'id', unexpected)).toBeNull();
    expect(unexpected.result('', '').note).toContain(`lookup ${String(status)} ${name}`);
  });

  test('executeOnce > accepts only a receipt', async () => {
    const unexpected = new UnexpectedAnswers();
    const credential = { tenantId: 'acme', apiKey: 'key' };
    const denied = { code: 'policy_denied' };
    const url = await serveAnswers([202, {}], [403, denied], [200, { status: 'ADMITTED' }]);
    const execute = (at: string) => executeOnce(at, credential, '{}', unexpected);
    expect(await execute(url)).toBeNull();
    expect(await execute(url)).toBeNull();
    expect(await execute(url)).toMatchObject({ receipt: { status: 'ADMITTED' } });
    expect(await execute('http://127.0.0.1:1')).toBeNull();
    const { value, note } = unexpected.result('', '');
    expect(value).toBe(3);
    expect(note).toContain('1 × 202; 1 × 403 policy_denied');
  });
});
