import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkMeanwhile } from '#bench/lookups/lookup-checks';
import { lookupRows, type LookupRounds } from '#bench/rows/lookup-rows';
import { requireAsSampled, takeSamples, type LookupSamples } from '#bench/lookups/lookup-samples';
import { startNginx } from '#bench/lookups/nginx';
import { requireAnswered, type Round } from '#bench/lookups/paired-load';
import { publishedIds } from '#bench/lookups/published-ids';
import { findTool } from '#bench/tools';
import { runWrk } from '#bench/lookups/wrk';
import { skipsNginx, withoutNginx } from '../fixtures/nginx.js';
import { TestSnapshot } from '../fixtures/snapshot.js';

const PROOFS = 600;
const WINDOW = 100;
const COUNT = 40;
const lacksWrk = findTool('wrk') === null || findTool('taskset') === null;
const skipsWrk = lacksWrk && process.env['CI'] === undefined;
const withoutWrk = lacksWrk ? ' (skipped: no wrk or no taskset here)' : '';

const snapshot = new TestSnapshot();
let proofs: string[];
let dir: string;
let url: string;
let samples: LookupSamples;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-lookups-'));
  proofs = snapshot.registry.addProofs(PROOFS);
  snapshot.registry.verify();
  await snapshot.publisher({ recentLookupLimit: WINDOW }).runCycle();
  url = (await snapshot.serve(snapshot.facade())).url;
  const { directory: snapshotDir, logVkey: log, snapshotVkey } = snapshot;
  const registry = { snapshotDir, vkeys: { log, snapshot: snapshotVkey } };
  samples = await takeSamples(registry, url, { dir, recentLookupLimit: WINDOW, count: COUNT });
});
afterAll(async () => {
  await snapshot.close();
  await rm(dir, { recursive: true, force: true });
});

const idsOf = ({ bodies }: { bodies: ReadonlyMap<string, Buffer> }): string[] =>
  [...bodies.keys()].map((path) => path.slice(-32));

describe('samples of lookups', () => {
  it('are of the window, of what is older, and of what nobody has', () => {
    expect(samples.proofs).toBe(PROOFS);
    for (const id of idsOf(samples.inWindow)) expect(proofs.slice(-WINDOW)).toContain(id);
    for (const id of idsOf(samples.older)) expect(proofs.slice(0, -WINDOW)).toContain(id);
    for (const id of idsOf(samples.absent)) expect(proofs).not.toContain(id);
    for (const one of [samples.inWindow, samples.older]) expect(one.bodies.size).toBe(COUNT);
    // Looked for where the others are, not behind the last of them.
    const [, second] = proofs.slice(-2);
    for (const id of idsOf(samples.absent))
      expect(id.slice(0, 12) <= second!.slice(0, 12)).toBe(true);
  });

  it('stand in files, byte for byte and one path a line', async () => {
    const { inWindow, staticRoot } = samples;
    for (const [path, body] of inWindow.bodies) {
      expect(await readFile(join(staticRoot, path))).toEqual(body);
    }
    const lines = (await readFile(inWindow.pathsFile, 'utf8')).trimEnd().split('\n');
    expect(lines).toEqual([...inWindow.bodies.keys()]);
  });

  it('are drawn from any part of the log, none twice', async () => {
    const range = { from: 1, to: PROOFS + 1 };
    const all = await publishedIds(snapshot.directory, PROOFS + 1, range, 10 * PROOFS);
    expect(all.sort()).toEqual([...proofs].sort());
  });

  it('are refused when all proofs are in the window', async () => {
    const { directory: snapshotDir, logVkey: log, snapshotVkey } = snapshot;
    const registry = { snapshotDir, vkeys: { log, snapshot: snapshotVkey } };
    const taking = takeSamples(registry, url, { dir, recentLookupLimit: PROOFS, count: COUNT });
    await expect(taking).rejects.toThrow('none is old');
  });
});

describe('the check of answers', () => {
  let server: Server;
  let otherUrl: string;
  /** Makes of a right answer what the server says. */
  let answer = (status: number, body: Buffer): [number, Buffer] => [status, body];
  beforeAll(async () => {
    server = createServer((req, res) => {
      const passOn = async (): Promise<void> => {
        const right = await fetch(url + (req.url ?? ''));
        const body = Buffer.from(await right.arrayBuffer());
        const [status, said] = answer(right.status, body);
        res.writeHead(status).end(said);
      };
      // Who asks hears of it; nobody may be left when the facade has ended.
      passOn().catch(() => res.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    otherUrl = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
  });
  afterAll(() => {
    server.close();
    server.closeAllConnections();
  });

  it('passes what is as it was', async () => {
    for (const one of [samples.inWindow, samples.older, samples.absent]) {
      await requireAsSampled('facade', url, one, 20);
      await requireAsSampled('other', otherUrl, one, 5);
    }
  });

  it('fails on another byte, and on another status', async () => {
    answer = (status, body) => [status, Buffer.from(body.toString().replace('VALID', 'VALIE'))];
    await expect(requireAsSampled('other', otherUrl, samples.inWindow, 1)).rejects.toThrow('other');
    answer = (_status, body) => [503, body];
    await expect(requireAsSampled('other', otherUrl, samples.older, 1)).rejects.toThrow('503');
    answer = (status, body) => [status, body];
  });

  it('fails the work when an answer goes wrong meanwhile', async () => {
    const servers = { other: { server: { url: otherUrl }, sample: samples.inWindow } };
    expect(await checkMeanwhile(servers, () => Promise.resolve('done'))).toBe('done');
    const work = checkMeanwhile(servers, () => {
      answer = (status) => [status, Buffer.from('nothing')];
      return Promise.resolve('done');
    });
    await expect(work).rejects.toThrow('another body');
    answer = (status, body) => [status, body];
  });

  it('fails what is not answered, or not as all are to be', () => {
    const said = { requests: 10, bytes: 1, seconds: 1, p50: 1, p99: 1, cpuSeconds: 1 };
    requireAnswered('x', { ...said, refused: 0, failed: 0 }, false);
    requireAnswered('x', { ...said, refused: 10, failed: 0 }, true);
    for (const [refused, failed, all] of [
      [1, 0, false],
      [0, 1, false],
      [9, 0, true],
    ] as const) {
      expect(() => requireAnswered('x', { ...said, refused, failed }, all)).toThrow('x: of 10');
    }
    expect(() =>
      requireAnswered('x', { ...said, requests: 0, refused: 0, failed: 0 }, false),
    ).toThrow();
  });
});

describe.skipIf(skipsNginx)(`the peer${withoutNginx}`, () => {
  it('answers with the same bytes as the facade', async () => {
    const nginx = await startNginx(join(dir, 'nginx'), samples.staticRoot, COUNT);
    try {
      await requireAsSampled('nginx', nginx.url, samples.inWindow, COUNT);
    } finally {
      await nginx.close();
    }
  });
});

describe.skipIf(skipsWrk)(`the load${withoutWrk}`, () => {
  it('asks for the paths of the file, and says what came of it', async () => {
    const load = { url, connections: 4, seconds: 1, seed: 1 };
    const { signal } = new AbortController();
    const hits = await runWrk({ ...load, pathsFile: samples.inWindow.pathsFile }, signal);
    requireAnswered('hit', hits, false);
    // Whole bodies came back.
    const least = Math.min(...[...samples.inWindow.bodies.values()].map(({ length }) => length));
    expect(hits.bytes / hits.requests).toBeGreaterThan(least);
    const misses = await runWrk({ ...load, pathsFile: samples.absent.pathsFile }, signal);
    requireAnswered('miss', misses, true);
  });
});

describe('the lookup rows', () => {
  const round = (cpuMicros: number, rate: number): Round => ({
    cpuMicros,
    rate,
    serverBusy: 0.9,
    loadBusy: 0.3,
    p50: 900,
    p99: 2_000,
  });
  const rounds: LookupRounds = {
    hit: [round(20, 100), round(10, 300), round(30, 200)],
    nginx: [round(10, 900), round(5, 900), round(6, 900)],
    miss: [round(10, 1), round(5, 1), round(10, 1)],
    older: [round(50, 1), round(25, 1), round(75, 1)],
    express: [round(40, 1), round(40, 1), round(40, 1)],
    constant: [round(10, 1), round(10, 1), round(10, 1)],
  };
  const rows = lookupRows(rounds, 'some proofs');
  const named = (name: string) => rows.find(({ row }) => row === name)!;

  it('compare what servers make of a second of their core, round by round', () => {
    const hit = named('public lookup, hit');
    expect(hit).toMatchObject({ value: 50_000, ratio: 0.5, ok: false });
    expect(hit.reach).toEqual({ ratio: { atLeast: 0.95 } });
    expect(hit.against?.value).toBeCloseTo(1e6 / 6);
    expect(hit.note).toContain('20.0 µs of CPU (10.0–30.0), 200/s');
    expect(hit.note).toContain('0.50 of what Node');
  });

  it('hold misses and old proofs against the hit, and only show the rest', () => {
    expect(named('public lookup, miss (404)')).toMatchObject({ ratio: 2, ok: true });
    expect(named('public lookup of an old proof')).toMatchObject({ ratio: 0.4, ok: false });
    expect(named('public lookup, through Express only')).toMatchObject({ ratio: 0.5, ok: null });
    expect(named("Node's own HTTP, one constant answer").ok).toBeNull();
  });
});
