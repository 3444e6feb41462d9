import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { scrape, valueOf } from '../fixtures/exposition.js';
import { isAlive, startProgram, type RunningProgram } from '../fixtures/program.js';
import { testSnapshot } from './world.js';

interface LogLine {
  msg?: string;
  instance?: string;
  child?: string;
  child_pid?: number;
  ops_url?: string;
}

interface RunningFacade extends RunningProgram {
  lines(): LogLine[];
  text(): string;
  /** Ids of all child processes that were started. */
  pids(): number[];
  /** The id of the last child process with this name. */
  pidOf(name: string): number;
}

const { proofs, treeSize, env: served } = await testSnapshot();
const proof = proofs[0]!;
const started: RunningFacade[] = [];
afterEach(async () => {
  await Promise.all(started.splice(0).map((facade) => facade.stop()));
});

async function start(env: Record<string, string>): Promise<RunningFacade> {
  const PATH = process.env['PATH'] ?? '';
  const program = await startProgram('facade', { PATH, ...served, ...env });
  const lines = (): LogLine[] =>
    program.stderr
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as LogLine);
  const facade: RunningFacade = {
    ...program,
    lines,
    text: () => program.stderr.join('\n'),
    pids: () => lines().flatMap(({ child_pid: pid }) => pid ?? []),
    pidOf: (name) =>
      lines().findLast(({ child, child_pid: pid }) => child === name && pid !== undefined)!
        .child_pid!,
  };
  started.push(facade);
  return facade;
}

const restarts = (facade: RunningFacade): number =>
  facade.lines().filter(({ msg }) => msg === 'child is ready again').length;

/** Kills a process and waits until it is replaced. */
async function replace(facade: RunningFacade, name: string): Promise<void> {
  const before = restarts(facade);
  process.kill(facade.pidOf(name), 'SIGKILL');
  await expect.poll(() => restarts(facade)).toBeGreaterThan(before);
}

/** Sends a request on its own connection; returns the status or the error code. */
function lookUp(url: string, proof: string): Promise<number | string> {
  const { hostname, port } = new URL(url);
  const path = `/api/public/verify/proof/${proof}`;
  return new Promise((resolve) => {
    const req = request({ hostname, port, path, agent: false }, (res) => {
      res.resume().once('end', () => resolve(res.statusCode ?? 0));
      res.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
    });
    req.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
    req.end();
  });
}

/** A request that lacks only its last byte. */
function holdRequest(url: string): { finish: () => void; answer: Promise<number> } {
  const { port, hostname } = new URL(url);
  const req = request({
    hostname,
    port,
    method: 'POST',
    path: '/api/public/verify',
    agent: false,
    headers: { 'Content-Type': 'application/json', 'Content-Length': '2' },
  });
  req.write('{');
  const answer = new Promise<number>((resolve, reject) => {
    req.once('response', (res) => {
      res.resume().once('end', () => resolve(res.statusCode ?? 0));
    });
    req.once('error', reject);
  });
  return { finish: () => req.end('}'), answer };
}

it('public API processes on one port > share the port, have separate operations listeners, and are replaced without a refused connection', async () => {
  const facade = await start({ PUBLIC_PROCESSES: '2', OPS_PORT: '0' });
  const started = () => facade.lines().filter(({ msg }) => msg === 'started');
  // Both children and their parent log `started`.
  await expect.poll(() => new Set(started().map(({ instance }) => instance)).size).toBe(3);
  const allOpsUrls = () => facade.lines().flatMap(({ ops_url: url }) => url ?? []);
  const opsUrls = allOpsUrls();
  for (let i = 0; i < 20; i += 1) expect(await lookUp(facade.url, proof)).toBe(200);
  const scraped = await Promise.all(opsUrls.map(scrape));
  const sizes = scraped.map((one) => valueOf(one, 'svc_snapshot_tree_size'));
  expect(sizes).toEqual([treeSize, treeSize]);
  const counts = scraped.map((one) => valueOf(one, 'svc_lookups_total', { status: 'VALID' })!);
  expect(counts[0]! + counts[1]!).toBe(20);
  for (const url of opsUrls) expect((await fetch(`${url}/readyz`)).status).toBe(200);

  const outcomes = new Map<number | string, number>();
  let isSending = true;
  const client = async (): Promise<void> => {
    while (isSending) {
      const outcome = await lookUp(facade.url, proof);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }
  };
  const clients = [client(), client(), client()];
  for (const number of [1, 2]) await replace(facade, `facade ${number}`);
  isSending = false;
  await Promise.all(clients);
  expect(outcomes.get(200)).toBeGreaterThan(100);
  // Only requests in the killed process may fail.
  expect([...outcomes.keys()].filter((one) => one !== 200 && one !== 'ECONNRESET')).toEqual([]);
  expect(outcomes.get('ECONNRESET') ?? 0).toBeLessThanOrEqual(2 * clients.length);

  // Enough requests in flight to reach both processes.
  const late = Array.from({ length: 8 }, () => holdRequest(facade.url));
  await sleep(300);
  facade.signal();
  await sleep(300);
  for (const { finish } of late) finish();
  expect(await Promise.all(late.map(({ answer }) => answer))).toEqual(late.map(() => 400));
  expect(await facade.exited).toBe(0);
  expect(facade.pids().filter(isAlive)).toEqual([]);
}, 80_000);
