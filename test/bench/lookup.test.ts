import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newRun } from '#bench/harness/items';
import { liveBytes, publishedLocation } from '#bench/harness/snapshot';
import { findTool } from '#bench/harness/tools';
import { runExecuteLoad, runLookups } from '#bench/harness/wrk';
import { requireAnswered } from '#bench/lookup/interleaved-load';
import { startNginx } from '#bench/lookup/servers';
import {
  requireAsSampled,
  takeSamples,
  withEqualAnswers,
  type LookupSample,
  type LookupSamples,
} from '#bench/lookup/samples';
import { skipsNginx, withoutNginx } from '../fixtures/nginx.js';
import { serveLocally, type LocalServer } from '../fixtures/local-server.js';
import { TestSnapshot } from '../fixtures/snapshot.js';

const PROOFS = 600;
const RECENT = 100;
const COUNT = 40;
const lacksWrk = findTool('wrk') === null || findTool('taskset') === null;
const skipsWrk = lacksWrk && process.env['CI'] === undefined;
const withoutWrk = lacksWrk ? ' (skipped: no wrk or no taskset here)' : '';
const { signal } = new AbortController();

const snapshot = new TestSnapshot();
const draw = (from: number, to: number, count: number) =>
  Promise.resolve(proofs.slice(Math.max(0, from - 1), to - 1).slice(0, count));
let proofs: string[];
let dir: string;
let url: string;
let samples: LookupSamples;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-lookups-'));
  proofs = snapshot.grow(PROOFS);
  await snapshot.publisher({ recentLookupLimit: RECENT }).runCycle();
  url = (await snapshot.serve(snapshot.publicServer())).url;
  samples = await takeSamples(draw, url, { dir, recentLookupLimit: RECENT, count: COUNT });
});
afterAll(async () => {
  await snapshot.close();
  await rm(dir, { recursive: true, force: true });
});

const idsOf = ({ bodies }: LookupSample): string[] =>
  [...bodies.keys()].map((path) => path.slice(-32));

it('takeSamples > draws recent, old and unknown IDs', async () => {
  for (const id of idsOf(samples.recent)) expect(proofs.slice(-RECENT)).toContain(id);
  for (const id of idsOf(samples.older)) expect(proofs.slice(0, -RECENT)).toContain(id);
  for (const id of idsOf(samples.absent)) expect(proofs).not.toContain(id);
  for (const [path, body] of samples.recent.bodies) {
    expect(await readFile(join(samples.staticRoot, path))).toEqual(body);
  }
});

describe('comparison of responses', () => {
  let other: LocalServer;
  type Answer = (status: number, body: Buffer) => [number, Buffer];
  const unchanged: Answer = (status, body) => [status, body];
  /** Changes that another server might make to a correct response. */
  let answer = unchanged;
  beforeAll(async () => {
    other = await serveLocally((req, res) => {
      const forward = async (): Promise<void> => {
        const right = await fetch(url + (req.url ?? ''));
        const [status, body] = answer(right.status, Buffer.from(await right.arrayBuffer()));
        res.writeHead(status).end(body);
      };
      forward().catch(() => res.destroy());
    });
  });
  afterAll(() => other.close());

  it('requireAsSampled > accepts equal responses and rejects another byte or status', async () => {
    for (const one of [samples.recent, samples.older, samples.absent]) {
      await requireAsSampled('other', other.url, one, 5);
    }
    answer = (status, body) => [status, Buffer.from(body.toString().replace('VALID', 'VALIE'))];
    await expect(requireAsSampled('other', other.url, samples.recent, 1)).rejects.toThrow('other');
    answer = (_status, body) => [503, body];
    await expect(requireAsSampled('other', other.url, samples.older, 1)).rejects.toThrow('503');
    answer = unchanged;
  });

  it('withEqualAnswers > rejects when a response changes during the measurement', async () => {
    const servers = { other: { server: other, sample: samples.recent } };
    expect(await withEqualAnswers(servers, () => Promise.resolve('done'))).toBe('done');
    const work = withEqualAnswers(servers, () => {
      answer = (status) => [status, Buffer.from('nothing')];
      return Promise.resolve('done');
    });
    await expect(work).rejects.toThrow('another body');
    answer = unchanged;
  });

  it('requireAnswered > rejects failures and unexpected statuses', () => {
    const load = { requests: 10, rejected: 0, failed: 0 };
    requireAnswered('x', load, false);
    requireAnswered('x', { ...load, rejected: 10 }, true);
    expect(() => requireAnswered('x', { ...load, rejected: 1 }, false)).toThrow('x: of 10');
    expect(() => requireAnswered('x', { ...load, failed: 1 }, false)).toThrow('x: of 10');
    expect(() => requireAnswered('x', { ...load, rejected: 9 }, true)).toThrow('x: of 10');
    expect(() => requireAnswered('x', { ...load, requests: 0 }, false)).toThrow('x: of 0');
  });
});

it.skipIf(skipsNginx)(
  `startNginx > serves the same bytes as the public API${withoutNginx}`,
  async () => {
    const nginx = await startNginx(join(dir, 'nginx'), samples.staticRoot, COUNT);
    try {
      await requireAsSampled('nginx', nginx.url, samples.recent, COUNT);
    } finally {
      await nginx.close();
    }
  },
);

describe.skipIf(skipsWrk)(`wrk${withoutWrk}`, () => {
  it('runLookups > requests the paths of its file and counts the responses', async () => {
    const load = { url, seconds: 1, seed: 1, signal };
    const hits = await runLookups({ ...load, pathsFile: samples.recent.pathsFile });
    requireAnswered('hit', hits, false);
    const misses = await runLookups({ ...load, pathsFile: samples.absent.pathsFile });
    requireAnswered('miss', misses, true);
  });

  it('runExecuteLoad > sends unique bodies and counts statuses and failures', async () => {
    const bodies: string[] = [];
    const server = await serveLocally((req, res) => {
      const chunks: Buffer[] = [];
      req.on('data', (chunk: Buffer) => chunks.push(chunk));
      req.on('end', () => {
        bodies.push(Buffer.concat(chunks).toString());
        if (req.headers['x-svc-api-key'] === 'cut') req.socket.destroy();
        else res.writeHead(bodies.length % 2 === 0 ? 200 : 503).end();
      });
    });
    const load = { url: server.url, watched: {}, seconds: 1, dir, signal };
    const credential = { tenantId: `tenant-${newRun()}`, apiKey: 'key' };
    const result = await runExecuteLoad({ ...load, credential });
    expect(Object.keys(result.answers).sort()).toEqual(['200', '503']);
    expect(result.failed).toBe(0);
    expect(new Set(bodies).size).toBe(bodies.length);
    const cut = await runExecuteLoad({ ...load, credential: { ...credential, apiKey: 'cut' } });
    expect(cut.answers).toEqual({});
    expect(cut.failed).toBeGreaterThan(0);
    await server.close();
  });
});

it('liveBytes > counts everything written until files are replaced', async () => {
  const own = new TestSnapshot();
  const publisher = own.publisher();
  const publish = async (count: number): Promise<number> => {
    own.registry.addProofs(count);
    own.registry.verify();
    await publisher.runCycle();
    const source = { snapshotDir: own.directory, logVkey: own.logVkey };
    return liveBytes(own.directory, await publishedLocation(source));
  };
  // Enough entries for two tiles, so that the tree has a second tile level.
  const first = await publish(600);
  expect(first).toBe(publisher.written().bytes);
  const second = await publish(5);
  expect(second).toBeGreaterThan(first);
  expect(second).toBeLessThan(publisher.written().bytes);
  await own.close();
});
