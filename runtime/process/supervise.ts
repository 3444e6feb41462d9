import { type ChildProcess, fork } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from './log.js';
import { OperatorError } from './operator-error.js';

export interface ChildSpec {
  name: string;
  /** The module to run. */
  file: string;
  /** Its whole environment: a child inherits nothing. */
  env: Readonly<Record<string, string>>;
  /** The variable that sets its port: after a crash it comes back on the port it had. */
  portVariable?: string;
}

export interface Supervised {
  name: string;
  /** Its URL, if it has one, once it serves. Rejects when it ends before that for the first time. */
  ready: Promise<string | undefined>;
  /** Whether it has said so in the life that it has at the moment. */
  isReady(): boolean;
  /** The process id at the moment, if it runs. */
  pid(): number | undefined;
  /** The process of the moment, if it runs: to talk to, not to end. */
  process(): ChildProcess | null;
  /** Asks it to drain, waits for it, and restarts it no more. */
  stop(): Promise<void>;
}

export interface SuperviseOptions {
  log: Pick<Logger, 'warn' | 'info'>;
  /** Where a child's lines go; ours when not given. */
  out?: (line: string) => void;
  /** How long a child may take to drain before it is killed, in milliseconds. */
  graceMs?: number;
  /** Fires when we are told to stop; a child that heard of it as well is not started again. */
  signal?: AbortSignal;
  /** Starts it in another way than as a module of its own. */
  launch?: (spec: ChildSpec) => ChildProcess;
  /** It ended before it was ready, that many times in a row; the first time of all, `ready` rejects. */
  onFailedStart?: (times: number) => void;
}

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 10_000;
/** A child that ran for so long has recovered from whatever made it crash before. */
const RECOVERED_MS = 60_000;
const GRACE_MS = 30_000;

/** A child that never came up; what it wrote before, which has been passed on, says why. */
export class ChildFailedError extends OperatorError {
  override name = 'ChildFailedError';
}

interface ReadyMessage {
  ready: true;
  url?: string;
}

const isReadyMessage = (message: unknown): message is ReadyMessage =>
  typeof message === 'object' && message !== null && 'ready' in message && message.ready === true;

const describe = (code: number | null, signal: NodeJS.Signals | null): string =>
  signal === null ? `ended with exit code ${String(code)}` : `was ended by ${signal}`;

/** Log lines are JSON and say who speaks; anything else gets the name in front. */
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
    // A process group of its own: an interrupt typed at the terminal reaches us alone, and we stop
    // the children in their order.
    detached: true,
  });
}

/** Runs a program as a child process and keeps it running until it is stopped. */
export function supervise(spec: ChildSpec, options: SuperviseOptions): Supervised {
  const {
    log,
    graceMs = GRACE_MS,
    launch = forkProgram,
    onFailedStart = () => undefined,
    out = (line) => void process.stderr.write(`${line}\n`),
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
  // Whoever asks for it gets the rejection; nobody asking is no crash of ours.
  ready.catch(() => undefined);

  function onReady(url: string | undefined): void {
    if (hasBeenReady) log.info({ child: spec.name }, 'a program is back');
    hasBeenReady = true;
    isReadyNow = true;
    if (spec.portVariable !== undefined && url !== undefined) {
      env = { ...env, [spec.portVariable]: new URL(url).port };
    }
    settleReady(url);
  }

  /** One life of the child; resolves with how it ended. */
  function live(): Promise<{ ending: string; lastedMs: number }> {
    const began = performance.now();
    const process = launch({ ...spec, env });
    child = process;
    isReadyNow = false;
    log.info({ child: spec.name, child_pid: process.pid }, 'a program is started');
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
      process.once('error', (error) => over(`could not be started (${error.message})`));
      // `close` comes after the last line has been read, `exit` may come before.
      process.once('close', (code, signal) => over(describe(code, signal)));
    });
  }

  async function keepAlive(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    while (!hasToStop.aborted) {
      const { ending, lastedMs } = await live();
      if (hasToStop.aborted) break;
      if (!hasBeenReady) {
        failReady(new ChildFailedError(`${spec.name} ${ending} before it was ready`));
        return;
      }
      if (failedStarts > 0) onFailedStart(failedStarts);
      if (lastedMs > RECOVERED_MS) pauseMs = FIRST_PAUSE_MS;
      log.warn({ child: spec.name, pauseMs }, `a program ${ending}; it is started again`);
      await sleep(pauseMs, undefined, { signal: hasToStop }).catch(() => undefined);
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    }
    failReady(new ChildFailedError(`${spec.name} was stopped before it was ready`));
  }

  const over = keepAlive();

  async function stop(): Promise<void> {
    stopping.abort();
    child?.kill('SIGTERM');
    const kill = (): void => void child?.kill('SIGKILL');
    // Should our own time be over first, one that hangs must not be left behind.
    process.once('exit', kill);
    const late = setTimeout(() => {
      log.warn({ child: spec.name }, 'a program did not drain in time and is killed');
      kill();
    }, graceMs);
    await over;
    clearTimeout(late);
    process.off('exit', kill);
  }

  return {
    name: spec.name,
    ready,
    isReady: () => isReadyNow,
    pid: () => child?.pid,
    process: () => child,
    stop,
  };
}
