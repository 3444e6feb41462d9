import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Logger } from '../process/log.js';
import { OperatorError } from '../process/operator-error.js';
import { spawnAs, clusterOf, type Place } from './place.js';
import type { Binaries } from './binaries.js';

export interface PostgresExit {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Whether `stop` was called; otherwise the server crashed. */
  expected: boolean;
}

export interface ServerOptions {
  /** 0 takes any free port. */
  port: number;
  /** Server parameters in addition to the defaults, or in their place. */
  settings: Record<string, string>;
  /** Cancels a start in progress: recovery may take long. */
  signal?: AbortSignal;
}

export type Server = Awaited<ReturnType<typeof startServer>>;

/** Longest wait for the remaining processes of a killed predecessor. */
const REMAINS_MS = 6_000;
/** Longest wait for the exit of a stopping server. */
const STOPPING_MS = 30_000;
const RIVAL_MS = 1_500;
const FAST_SHUTDOWN_MS = 30_000;
/** Longest start: crash recovery replays the write-ahead log since the last checkpoint. */
const RECOVERY_MS = 10 * 60_000;

/** Finds a free port on the loopback interface. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  await once(probe.close(), 'close');
  return port;
}

/**
 * Starts a shell that stops the server when this process dies (kill -9, out of memory), because an
 * orphaned server would block the next start. The shell's standard input is a pipe whose other end only this
 * process holds.
 */
function watch(pid: number, place: Place): ChildProcess {
  const watchdog = spawn('/bin/sh', ['-c', 'read -r _; kill -INT "$1"', 'sh', String(pid)], {
    ...spawnAs(place.account),
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  watchdog.on('error', () => undefined);
  watchdog.stdin?.on('error', () => undefined);
  watchdog.unref();
  return watchdog;
}

function parameters(port: number, settings: Record<string, string>): string[] {
  const all: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    max_connections: '150',
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    password_encryption: 'scram-sha-256',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...settings,
  };
  return Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/**
 * Starts the server; null when it exited before it was ready.
 *
 * @param output gets the last lines that the server prints
 */
async function launch(
  binaries: Binaries,
  place: Place,
  { port: asked, settings, signal: stopping }: ServerOptions,
  log: Pick<Logger, 'debug'>,
  output: string[],
) {
  const cluster = clusterOf(place);
  const port = asked === 0 ? await freePort() : asked;
  const child = spawn(binaries.postgres, ['-D', cluster, ...parameters(port, settings)], {
    ...spawnAs(place.account),
    stdio: ['ignore', 'ignore', 'pipe'],
    // Runs in its own process group: an interrupt at the terminal must not stop the database before
    // its clients.
    detached: true,
  });
  let isExpected = false;
  let isRunning = true;
  /** Resolves when the server has exited, whether stopped or crashed. */
  const exited = new Promise<PostgresExit>((resolve) => {
    const end = (code: number | null, signal: NodeJS.Signals | null): void => {
      isRunning = false;
      resolve({ code, signal, expected: isExpected });
    };
    child.once('error', (error) => {
      output.push(error.message);
      end(null, null);
    });
    child.once('exit', end);
  });
  child.stderr.setEncoding('utf8');
  child.stderr.on('data', (text: string) => {
    for (const line of text.split('\n')) if (line !== '') output.push(line);
    output.splice(0, output.length - 20);
    log.debug({ postgres: text.trimEnd() });
  });
  const { pid } = child;
  if (pid === undefined) return exited.then(() => null);
  const watchdog = watch(pid, place);
  void exited.then(() => watchdog.kill('SIGKILL'));

  /** Fast shutdown: sessions end, and committed data is on disk. */
  const stop = async (): Promise<void> => {
    isExpected = true;
    child.kill('SIGINT');
    const inTime = await Promise.race([
      exited.then(() => true),
      sleep(FAST_SHUTDOWN_MS, false, { ref: false }),
    ]);
    if (!inTime) child.kill('SIGQUIT');
    await exited;
  };

  const deadline = Date.now() + RECOVERY_MS;
  while (isRunning) {
    const state = await readPostmasterPid(cluster);
    if (Date.now() > deadline || stopping?.aborted === true) {
      await stop();
      return null;
    }
    if (state?.pid === pid && state.status === 'ready') return { pid, port, exited, stop };
    await Promise.race([sleep(15), exited]);
  }
  return null;
}

/** Starts the server and waits until it accepts connections. */
export async function startServer(
  binaries: Binaries,
  place: Place,
  options: ServerOptions,
  log: Pick<Logger, 'debug'>,
) {
  const cluster = clusterOf(place);
  const output: string[] = [];
  const began = Date.now();
  for (;;) {
    options.signal?.throwIfAborted();
    const waited = Date.now() - began;
    const rival = await runningOn(cluster);
    if (rival === null) {
      await disownStalePid(cluster);
      const server = await launch(binaries, place, options, log, output);
      if (server !== null) return server;
      // Retry: the port may have been taken in the meantime, or processes of a killed server may
      // still be exiting.
      if (waited > REMAINS_MS) {
        throw new OperatorError(
          `Postgres did not start on ${place.directory}:\n${output.join('\n')}`,
        );
      }
    } else if (waited > (rival.status === 'stopping' ? STOPPING_MS : RIVAL_MS)) {
      throw new OperatorError(
        `Another Postgres (process ${String(rival.pid)}) is already running on ${place.directory}: ` +
          'stop the program that started it, or choose another DATA_DIR.',
      );
    }
    await sleep(250);
  }
}

const execFileAsync = promisify(execFile);

/** The lines of `postmaster.pid` that this module reads: process id (1st) and state (8th). */
interface PostmasterPid {
  pid: number;
  status: string;
}

const pidFile = (cluster: string): string => join(cluster, 'postmaster.pid');

async function readPostmasterPid(cluster: string): Promise<PostmasterPid | null> {
  const text = await readFile(pidFile(cluster), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  const lines = text?.split('\n');
  return lines ? { pid: Number(lines[0]), status: (lines[7] ?? '').trim() } : null;
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** The command line of a process: empty for a zombie, null when it is not accessible. */
async function commandLine(pid: number): Promise<string | null> {
  try {
    if (process.platform === 'linux') return await readFile(`/proc/${String(pid)}/cmdline`, 'utf8');
    return (await execFileAsync('ps', ['-o', 'command=', '-p', String(pid)])).stdout;
  } catch {
    return null;
  }
}

/** The server that runs on this cluster, if any. */
async function runningOn(cluster: string): Promise<PostmasterPid | null> {
  const found = await readPostmasterPid(cluster);
  if (found === null || !Number.isSafeInteger(found.pid) || found.pid <= 0) return null;
  if (!alive(found.pid)) return null;
  const command = await commandLine(found.pid);
  // An unreadable process counts as the server: refusing to start is safer than corrupting a live
  // cluster.
  if (command === null && alive(found.pid)) return found;
  return command?.includes(cluster) ? found : null;
}

/**
 * After a crash, the recorded process id may belong to an unrelated process, and Postgres would
 * refuse to start. The file must stay, because it also names the shared memory that processes of
 * the dead server may still use. So only the id is replaced, with the id of this process: Postgres
 * never mistakes its parent process for a running server.
 */
async function disownStalePid(cluster: string): Promise<void> {
  const found = await readPostmasterPid(cluster);
  if (found === null || !alive(found.pid)) return;
  const lines = (await readFile(pidFile(cluster), 'utf8')).split('\n');
  lines[0] = String(process.pid);
  await writeFile(pidFile(cluster), lines.join('\n'));
}
