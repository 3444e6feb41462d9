import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '#runtime/process/package-root';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';

export type ProgramName = 'engine' | 'worker' | 'verifier' | 'publisher' | 'facade';

/** The real thing: `npm start`, with its processes and its files. */
export interface RunningStack {
  dataDir: string;
  engineUrl: string;
  publicUrl: string;
  tenantId: string;
  apiKey: string;
  /** Every log line so far. */
  lines: LogLine[];
  /** The process id of a program, or of Postgres, at the moment. */
  pid(name: ProgramName | 'postgres'): number;
  /** kill -9, and nothing else. */
  kill(name: ProgramName | 'postgres'): void;
  /** A pool as the database's superuser, closed by `stop`. */
  superuser(): Pool;
  execute(fields: ExecuteFields, headers?: Record<string, string>): Promise<Response>;
  lookUp(proofId: string): Promise<Response>;
  /** Asks for SIGTERM and returns the exit code. */
  stop(): Promise<number | null>;
  /** Stops, and removes what is on disk. */
  destroy(): Promise<void>;
}

export interface ExecuteFields {
  intent_id: string;
  action: string;
  proof_chain_fixture_ref?: string;
  idempotency_key?: string;
}

type LogLine = Record<string, unknown> & { msg?: string };

interface Ready {
  engine_url: string;
  public_url: string;
  tenant_id: string;
  api_key: string;
}

const READY_MS = 60_000;

export async function startStack(
  env: Record<string, string> = {},
  dataDir?: string,
): Promise<RunningStack> {
  const home = dataDir ?? (await mkdtemp(join(tmpdir(), 'svc-stack-')));
  // Within reach of the user that Postgres runs as when the tests run as root.
  await chmod(home, 0o755);
  // As a user would, so that the signal to stop has to find its way through npm. The build is there.
  const child = spawn('npm', ['start', '--silent', '--ignore-scripts'], {
    cwd: packageRoot,
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: process.env['HOME'] ?? home,
      DATA_DIR: home,
      ENGINE_PORT: '0',
      PUBLIC_PORT: '0',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const lines: LogLine[] = [];
  const pids = new Map<string, number>();
  const port = { postgres: 0 };
  const take = (text: string): void => {
    const line = logLine(text);
    if (line === null) return;
    lines.push(line);
    const { child: name, child_pid: pid, cluster } = line;
    if (typeof name === 'string' && typeof pid === 'number') pids.set(name, pid);
    if (cluster !== undefined) {
      pids.set('postgres', Number(line['pid']));
      port.postgres = Number(line['port']);
    }
  };
  createInterface({ input: child.stderr }).on('line', take);
  createInterface({ input: child.stdout }).on('line', take);
  const ready = await waitUntilReady(child, join(home, 'ready.json'), lines);
  const pools: Pool[] = [];

  const pid = (name: string): number => {
    const found = pids.get(name);
    if (found === undefined) throw new Error(`no pid of ${name} was logged`);
    return found;
  };
  const stop = async (): Promise<number | null> => {
    await Promise.all(pools.splice(0).map((pool) => pool.end({ timeout: 1 })));
    if (child.exitCode !== null) return child.exitCode;
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    return exited;
  };
  return {
    dataDir: home,
    engineUrl: ready.engine_url,
    publicUrl: ready.public_url,
    tenantId: ready.tenant_id,
    apiKey: ready.api_key,
    lines,
    pid,
    kill: (name) => process.kill(pid(name), 'SIGKILL'),
    superuser: () => {
      const password = readFileSync(join(home, 'postgres-password'), 'utf8').trim();
      const pool = connect(`postgres://postgres:${password}@127.0.0.1:${port.postgres}/svc`, {
        application: 'test',
        max: 2,
      });
      pools.push(pool);
      return pool;
    },
    execute: (fields, headers = {}) =>
      fetch(`${ready.engine_url}/v1/intents/execute`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'x-svc-api-key': ready.api_key,
          'x-svc-tenant-id': ready.tenant_id,
          'svc-api-version': 'v1',
          ...headers,
        },
        body: JSON.stringify({
          schema_version: 'svc.runtime.intent_execute.request/1.0',
          tenant_id: ready.tenant_id,
          ...fields,
        }),
      }),
    lookUp: (proofId) => fetch(`${ready.public_url}/api/public/verify/proof/${proofId}`),
    stop,
    destroy: async () => {
      await stop();
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

/** Null for what is none, such as the half of one that a program was killed in. */
function logLine(text: string): LogLine | null {
  if (!text.startsWith('{')) return null;
  try {
    return JSON.parse(text) as LogLine;
  } catch {
    return null;
  }
}

async function waitUntilReady(child: ChildProcess, file: string, lines: LogLine[]): Promise<Ready> {
  const deadline = Date.now() + READY_MS;
  while (Date.now() < deadline) {
    if (child.exitCode !== null) {
      throw new Error(`start exited with ${child.exitCode}: ${JSON.stringify(lines.slice(-5))}`);
    }
    try {
      return JSON.parse(await readFile(file, 'utf8')) as Ready;
    } catch {
      await sleep(50);
    }
  }
  child.kill('SIGTERM');
  throw new Error(`start was not ready in time: ${JSON.stringify(lines.slice(-5))}`);
}

/** Tries until `attempt` gives something other than null. */
export async function eventually<T>(
  attempt: () => Promise<T | null>,
  withinMs: number,
  what: string,
): Promise<T> {
  const deadline = Date.now() + withinMs;
  for (;;) {
    const found = await attempt();
    if (found !== null) return found;
    if (Date.now() > deadline) throw new Error(`${what} did not come within ${withinMs} ms`);
    await sleep(25);
  }
}
