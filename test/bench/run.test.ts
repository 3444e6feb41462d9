import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { REDIS_SETTINGS } from '#bench/service/redis';
import { rowOf, type BenchContext, type Measurement } from '#bench/row';
import { runBench } from '#bench/run-bench';
import { requireTools } from '#bench/tools';
import { skipsRedis, withoutRedis } from '../fixtures/redis.js';

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-bench-run-'));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const row = rowOf({ row: 'one', value: 1, unit: 'thing' });
const measurement = (name: string, measure: Measurement['measure']): Measurement => ({
  name,
  measure,
});
const good = measurement('good', () => Promise.resolve([row]));
const run = (all: Measurement[], only?: string[], signal = new AbortController().signal) =>
  runBench(all, { quick: true, profile: false, only, dir, signal });

describe('the bench', () => {
  it('refuses a name that is none before it starts anything', async () => {
    const directory = join(dir, 'never');
    const { signal } = new AbortController();
    const options = { quick: true, profile: false, only: ['goood'], dir: directory, signal };
    await expect(runBench([good], options)).rejects.toThrow(
      'no measurement is called goood; there are good',
    );
    expect(await readdir(dir)).toEqual([]);
  });
});

describe('what has to be installed', () => {
  it('is said all at once, by the packages to install, and once each', () => {
    const find = (tool: string): string | null => (tool === 'nginx' ? '/usr/sbin/nginx' : null);
    expect(() => requireTools(['wrk', 'taskset', 'nginx', 'wrk'], find)).toThrow(
      'wrk, taskset: not found here, and measured against. On Debian: apt-get install wrk util-linux',
    );
    expect(() => requireTools(['nginx', 'nginx'], find)).not.toThrow();
  });
});

describe.skipIf(skipsRedis)(`the bench, with its Redis${withoutRedis}`, () => {
  it('has a row for a measurement that fails, and one for one that measures nothing', async () => {
    const rows = await run([
      measurement('bad', () => Promise.reject(new Error('no disk'))),
      measurement('empty', () => Promise.resolve([])),
      good,
    ]);
    expect(rows.map(({ row: name, ok, note }) => ({ name, ok, note }))).toEqual([
      { name: 'bad', ok: false, note: 'failed: no disk' },
      { name: 'empty', ok: false, note: 'failed: it measured nothing' },
      { name: 'one', ok: null, note: undefined },
    ]);
  });

  it('gives each a directory and a Redis that persists, and has what others left', async () => {
    const seen: Pick<BenchContext, 'dir' | 'quick'>[] = [];
    const asking = (name: string): Measurement =>
      measurement(name, async (context) => {
        seen.push({ dir: context.dir, quick: context.quick });
        const redis = new Redis(context.redisUrl);
        expect(await redis.dbsize()).toBe(0);
        for (const [setting, wanted] of Object.entries(REDIS_SETTINGS)) {
          expect(await redis.config('GET', setting)).toEqual([setting, wanted]);
        }
        await redis.set('left', 'over');
        await redis.quit();
        return [row];
      });
    const rows = await run([asking('a'), asking('b'), asking('c')], ['c', 'a']);
    expect(rows).toEqual([row, row]);
    expect(seen).toEqual([
      { dir: join(dir, 'a'), quick: true },
      { dir: join(dir, 'c'), quick: true },
    ]);
  });

  it('stops when it is interrupted, and has no rows then', async () => {
    const stopping = new AbortController();
    let after = false;
    const all = [
      measurement('first', ({ signal }) => {
        stopping.abort(new Error('interrupted'));
        return Promise.reject(signal.reason as Error);
      }),
      measurement('second', () => {
        after = true;
        return Promise.resolve([row]);
      }),
    ];
    await expect(run(all, undefined, stopping.signal)).rejects.toThrow('interrupted');
    expect(after).toBe(false);
  });
});
