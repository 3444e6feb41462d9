import { fork, type ChildProcess } from 'node:child_process';
import { request } from 'node:http';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { scrape, valueOf } from '../fixtures/exposition.js';
import { send } from '../fixtures/send.js';
import { TestSnapshot } from '../fixtures/snapshot.js';

const PROGRAM = join(packageRoot, 'dist', 'programs', 'facade.js');
const TIMEOUT_MS = 20_000;

const snapshot = new TestSnapshot();
let proof: string;
const started: RunningFacade[] = [];

beforeAll(async () => {
  proof = snapshot.registry.addProof();
  snapshot.registry.verify();
  // The programs' clock, not the test's.
  snapshot.clock.at = Date.now();
  await snapshot.publisher().runCycle();
});
afterEach(() => {
  for (const { child, pids } of started.splice(0)) {
    child.kill('SIGKILL');
    for (const pid of pids()) endQuietly(pid);
  }
});
afterAll(() => snapshot.close());

interface LogLine {
  msg?: string;
  pid?: number;
  child?: string;
  child_pid?: number;
}

interface RunningFacade {
  child: ChildProcess;
  /** Each URL that it reported as ready. */
  ready: string[];
  lines: LogLine[];
  text: () => string;
  /** Ids of all processes that it started. */
  pids(): number[];
  exited: Promise<number | null>;
}

function startFacade(env: Record<string, string>): RunningFacade {
  const child = fork(PROGRAM, [], {
    env: {
      PATH: process.env['PATH'] ?? '',
      LOG_VKEY: snapshot.logVkey,
      SNAPSHOT_VKEY: snapshot.snapshotVkey,
      SNAPSHOT_DIR: snapshot.directory,
      PUBLIC_PORT: '0',
      ...env,
    },
    execArgv: [],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let text = '';
  const ready: string[] = [];
  child.stderr!.setEncoding('utf8').on('data', (piece: string) => (text += piece));
  child.on('message', (message: { url?: string }) => ready.push(message.url ?? ''));
  // The last line may be incomplete.
  const lines = (): LogLine[] =>
    text
      .split('\n')
      .slice(0, -1)
      .flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as LogLine] : []));
  const running = {
    child,
    ready,
    get lines() {
      return lines();
    },
    text: () => text,
    pids: () => lines().flatMap(({ child_pid: pid }) => pid ?? []),
    exited: new Promise<number | null>((resolve) => child.once('close', resolve)),
  };
  started.push(running);
  return running;
}

/** Process id of the current child. */
function pidOf({ lines }: RunningFacade, name: string): number {
  return lines.findLast(({ child, child_pid: pid }) => child === name && pid !== undefined)!
    .child_pid!;
}

function endQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has exited.
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function eventually<T>(look: () => T | undefined | false, what: string): Promise<T> {
  const deadline = Date.now() + TIMEOUT_MS;
  for (;;) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`${what} did not come about`);
    await sleep(20);
  }
}

const urlOf = ({ ready, text }: RunningFacade): Promise<string> =>
  eventually(() => ready[0], `readiness (${text()})`);

/** Sends a request on its own connection; returns the status or the error code. */
function lookUp(url: string): Promise<number | string> {
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

/** Takes a port as soon as it is released, before its owner restarts. */
async function takePort(port: number): Promise<Server> {
  for (;;) {
    const server = createServer();
    const isListening = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (isListening) return server;
    await sleep(5);
  }
}

describe('several public API processes', () => {
  it(
    'serve one port, and report ready once all of them do',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '3' });
      const url = await urlOf(facade);
      const serving = facade.lines.filter(({ msg }) => msg === 'public API started');
      // Each of the three, and their parent.
      expect(new Set(serving.map(({ pid }) => pid)).size).toBe(4);
      expect(facade.pids()).toHaveLength(3);
      for (let i = 0; i < 20; i += 1) expect(await lookUp(url)).toBe(200);
      expect(facade.ready).toEqual([url]);
    },
    TIMEOUT_MS * 2,
  );

  it(
    'are replaced when killed, without a refused connection',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '2' });
      const url = await urlOf(facade);
      const outcomes = new Map<number | string, number>();
      let asking = true;
      const client = async (): Promise<void> => {
        while (asking) {
          const outcome = await lookUp(url);
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        }
      };
      const clients = [client(), client(), client()];
      for (const number of [1, 2, 1]) {
        const name = `facade ${number}`;
        const pid = pidOf(facade, name);
        const back = facade.lines.filter(({ msg }) => msg === 'child is ready again').length;
        process.kill(pid, 'SIGKILL');
        await eventually(
          () => facade.lines.filter(({ msg }) => msg === 'child is ready again').length > back,
          `${name} after it was killed`,
        );
      }
      asking = false;
      await Promise.all(clients);
      expect(outcomes.get(200)).toBeGreaterThan(100);
      // Only requests in the killed process may fail.
      expect([...outcomes.keys()].filter((one) => one !== 200 && one !== 'ECONNRESET')).toEqual([]);
      expect(outcomes.get('ECONNRESET') ?? 0).toBeLessThanOrEqual(3 * clients.length);
      // Ready is not reported to the parent again.
      expect(facade.ready).toEqual([url]);
    },
    TIMEOUT_MS * 4,
  );

  it(
    'are scraped as one program, and keep their counters when one is replaced',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '2', OPS_PORT: '0' });
      const url = await urlOf(facade);
      const opsUrl = /"ops_url":"([^"]+)"/.exec(facade.text())![1]!;
      const told = async (): Promise<number> =>
        valueOf(await scrape(opsUrl), 'svc_lookups_total', { status: 'VALID' })!;
      for (let i = 0; i < 20; i += 1) expect(await lookUp(url)).toBe(200);
      expect(await told()).toBe(20);
      expect(valueOf(await scrape(opsUrl), 'svc_snapshot_proofs')).toBe(1);
      const ready = await fetch(`${opsUrl}/readyz`);
      expect(ready.status).toBe(200);
      expect((await ready.json()) as object).toMatchObject({
        processes: [{ status: 'ready' }, { status: 'ready' }],
      });

      process.kill(pidOf(facade, 'facade 1'), 'SIGKILL');
      await eventually(
        () => facade.lines.some(({ msg }) => msg === 'child is ready again'),
        'facade 1 after it was killed',
      );
      expect(await told()).toBe(20);
      for (let i = 0; i < 5; i += 1) expect(await lookUp(url)).toBe(200);
      expect(await told()).toBe(25);
      expect(await told()).toBe(25);

      // The port is in use: a second listener's error names the setting.
      const second = startFacade({ OPS_PORT: new URL(opsUrl).port });
      expect(await second.exited).toBe(1);
      expect(second.text()).toContain('is in use: set OPS_PORT to another port');
    },
    TIMEOUT_MS * 2,
  );

  it(
    'finish requests in flight on SIGTERM, and exit with 0',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '2' });
      const url = await urlOf(facade);
      // Enough requests to reach both processes.
      const late = Array.from({ length: 8 }, () => holdRequest(url));
      await sleep(300);
      facade.child.kill('SIGTERM');
      await sleep(300);
      for (const { finish } of late) finish();
      expect(await Promise.all(late.map(({ answer }) => answer))).toEqual(late.map(() => 400));
      expect(await facade.exited).toBe(0);
      expect(facade.pids().filter(isAlive)).toEqual([]);
    },
    TIMEOUT_MS * 2,
  );

  it(
    'finish requests in flight and exit when their parent exits',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '2' });
      const url = await urlOf(facade);
      const pids = facade.pids();
      expect(pids.filter(isAlive)).toHaveLength(2);
      const late = holdRequest(url);
      await sleep(300);
      facade.child.kill('SIGKILL');
      await sleep(300);
      late.finish();
      expect(await late.answer).toBe(400);
      await eventually(() => pids.every((pid) => !isAlive(pid)), 'the end of the others');
    },
    TIMEOUT_MS * 2,
  );

  it(
    'are given up with a message when they cannot start',
    async () => {
      const facade = startFacade({
        PUBLIC_PROCESSES: '2',
        LOG_VKEY: snapshot.snapshotVkey,
        SNAPSHOT_VKEY: `a+00000000+${'A'.repeat(44)}`,
      });
      expect(await facade.exited).toBe(1);
      expect(facade.ready).toEqual([]);
      expect(facade.text()).toContain('LOG_VKEY or SNAPSHOT_VKEY is not usable');
      expect(facade.text()).toContain('facade 1 ended with exit code 1 before it was ready');
      // Reported once, not once per process.
      expect(facade.pids()).toHaveLength(1);
    },
    TIMEOUT_MS * 2,
  );

  it(
    'are given up when none serves and restarts fail',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '2' });
      const { port } = new URL(await urlOf(facade));
      for (const pid of facade.pids()) process.kill(pid, 'SIGKILL');
      const thief = await takePort(Number(port));
      expect(await facade.exited).toBe(1);
      expect(facade.text()).toMatch(/No process serves, and facade \d exited \d times in a row/);
      expect(facade.text()).toContain('set PUBLIC_PORT to another port');
      expect(facade.pids().filter(isAlive)).toEqual([]);
      await new Promise((resolve) => thief.close(resolve));
    },
    TIMEOUT_MS * 2,
  );

  it(
    'are given up when the port is in use, with the setting in the message',
    async () => {
      const facade = startFacade({ PUBLIC_PROCESSES: '2' });
      const { port } = new URL(await urlOf(facade));
      const second = startFacade({ PUBLIC_PROCESSES: '2', PUBLIC_PORT: port });
      expect(await second.exited).toBe(1);
      expect(second.text()).toContain('set PUBLIC_PORT to another port');
      expect(second.pids()).toEqual([]);
      expect(
        (await send(`http://127.0.0.1:${port}`, { method: 'GET', path: '/healthz' })).status,
      ).toBe(200);
    },
    TIMEOUT_MS * 2,
  );
});

describe('a single public API process', () => {
  it(
    'runs in the main process',
    async () => {
      const facade = startFacade({});
      expect(await lookUp(await urlOf(facade))).toBe(200);
      expect(facade.pids()).toEqual([]);
      facade.child.kill('SIGTERM');
      expect(await facade.exited).toBe(0);
    },
    TIMEOUT_MS * 2,
  );
});
