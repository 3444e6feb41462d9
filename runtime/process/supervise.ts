import { type ChildProcess, fork } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { writeLine, type Logger } from './log.js';
import { OperatorError } from './operator-error.js';

export interface ChildSpec {
  name: string;
  file: string;
  /** The child's complete environment: nothing is inherited. */
  env: Readonly<Record<string, string>>;
  /** The variable that sets the child's port, which a restart reuses. */
  portVariable?: string;
}

export type Supervised = ReturnType<typeof supervise>;

export interface SuperviseOptions {
  log: Pick<Logger, 'warn' | 'info'>;
  /** Receives the child's output lines; written to stderr by default. */
  out?: (line: string) => void;
  /** Time for a child to drain before it is killed, in milliseconds. */
  graceMs?: number;
  /** Fires when the parent has to stop; from then on, no child is restarted. */
  signal?: AbortSignal;
  /** Replaces `fork` to start the child. */
  launch?: (spec: ChildSpec) => ChildProcess;
  /** Called with the number of consecutive failed starts. A failure of the very first start rejects `ready` instead. */
  onFailedStart?: (times: number) => void;
}

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 10_000;
/** A child that ran this long has recovered: its restart delay is reset. */
const RECOVERED_MS = 60_000;
const GRACE_MS = 30_000;

interface ReadyMessage {
  ready: true;
  url?: string;
}

const isReadyMessage = (message: unknown): message is ReadyMessage =>
  typeof message === 'object' && message !== null && 'ready' in message && message.ready === true;

const describe = (code: number | null, signal: NodeJS.Signals | null): string =>
  signal === null ? `ended with exit code ${String(code)}` : `was ended by ${signal}`;

/** Forwards JSON log lines unchanged, and prefixes other lines with the child's name. */
function forward(stream: Readable, name: string, write: (line: string) => void): void {
  createInterface({ input: stream }).on('line', (line) => {
    write(line.startsWith('{') ? line : `[${name}] ${line}`);
  });
}

function forkProgram({ file, env }: ChildSpec): ChildProcess {
  return fork(file, [], {
    env,
    execArgv: [],
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // Runs in its own process group: an interrupt at the terminal must reach only the parent, which
    // stops its children in order.
    detached: true,
  });
}

/** Runs a program as a child process and keeps it running until it is stopped. */
export function supervise(spec: ChildSpec, options: SuperviseOptions) {
  const {
    log,
    graceMs = GRACE_MS,
    launch = forkProgram,
    onFailedStart = () => undefined,
    out = (line) => void writeLine(`${line}\n`),
  } = options;
  const stopping = new AbortController();
  const hasToStop = AbortSignal.any([stopping.signal, ...(options.signal ? [options.signal] : [])]);
  let env = spec.env;
  let child: ChildProcess | null = null;
  let settleReady: (url: string | undefined) => void = () => undefined;
  let failReady: (error: Error) => void = () => undefined;
  let hasBeenReady = false;
  let isReadyNow = false;
  let failedStarts = 0;
  const ready = new Promise<string | undefined>((resolve, reject) => {
    settleReady = resolve;
    failReady = reject;
  });
  // Callers that await `ready` get the rejection, which must not end the process without such a caller.
  ready.catch(() => undefined);

  function onReady(url: string | undefined): void {
    if (hasBeenReady) log.info({ child: spec.name }, 'child is ready again');
    hasBeenReady = true;
    isReadyNow = true;
    if (spec.portVariable !== undefined && url !== undefined) {
      env = { ...env, [spec.portVariable]: new URL(url).port };
    }
    settleReady(url);
  }

  /** Runs the child once; resolves with how it ended. */
  function live(): Promise<{ ending: string; lastedMs: number }> {
    const began = performance.now();
    const process = launch({ ...spec, env });
    child = process;
    isReadyNow = false;
    log.info({ child: spec.name, child_pid: process.pid }, 'child started');
    if (process.stdout) forward(process.stdout, spec.name, out);
    if (process.stderr) forward(process.stderr, spec.name, out);
    process.on('message', (message) => {
      if (isReadyMessage(message)) onReady(message.url);
    });
    return new Promise((resolve) => {
      const over = (ending: string): void => {
        child = null;
        failedStarts = isReadyNow ? 0 : failedStarts + 1;
        isReadyNow = false;
        resolve({ ending, lastedMs: performance.now() - began });
      };
      process.once('error', (error) => over(`did not start (${error.message})`));
      // `close` follows the last output line; `exit` may precede that line.
      process.once('close', (code, signal) => over(describe(code, signal)));
    });
  }

  async function keepAlive(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    while (!hasToStop.aborted) {
      const { ending, lastedMs } = await live();
      if (hasToStop.aborted) break;
      if (!hasBeenReady) {
        failReady(new OperatorError(`${spec.name} ${ending} before it was ready`));
        return;
      }
      if (failedStarts > 0) onFailedStart(failedStarts);
      if (lastedMs > RECOVERED_MS) pauseMs = FIRST_PAUSE_MS;
      log.warn({ child: spec.name, pauseMs }, `child ${ending} and will be restarted`);
      await sleep(pauseMs, undefined, { signal: hasToStop }).catch(() => undefined);
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    }
    failReady(new OperatorError(`${spec.name} was stopped before it was ready`));
  }

  const over = keepAlive();

  async function stop(): Promise<void> {
    stopping.abort();
    child?.kill('SIGTERM');
    const kill = (): void => void child?.kill('SIGKILL');
    // If the parent exits first, a hanging child must not outlive it.
    process.once('exit', kill);
    const late = setTimeout(() => {
      log.warn({ child: spec.name }, 'child did not drain in time and was killed');
      kill();
    }, graceMs);
    await over;
    clearTimeout(late);
    process.off('exit', kill);
  }

  return {
    /** Resolves with the child's URL, if any, once it serves. Rejects when the first start fails. */
    ready,
    isReady: () => isReadyNow,
    pid: () => child?.pid,
    /** Makes the child drain, waits for its exit and does not restart it. */
    stop,
  };
}
