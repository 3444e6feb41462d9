import { format } from 'node:util';
import { withTimeout } from '../concurrency.js';
import { readLogLevel, type DrainConfig } from '../config.js';
import { logger, type Logger, type LogLevel } from './log.js';
import { OperatorError } from './operator-error.js';

export interface ProgramContext {
  signal: AbortSignal;
  log: Logger;
  /** Registers a cleanup. Cleanups run in reverse order at exit, each awaited. */
  onStop(stop: () => unknown): void;
  drainAs(drain: DrainConfig): void;
  /** Reports the loss of a required dependency: the program drains and exits with 1. */
  fail(error: unknown): void;
}

export interface ProgramOptions {
  drainMs?: number;
  /**
   * Whether to exit when `main` returns, instead of staying up until a signal. An earlier signal ends the
   * program with 1, because its work is incomplete.
   */
  untilMainReturns?: boolean;
  /** Used when LOG_LEVEL is unset. */
  logLevel?: LogLevel;
}

const FAILED_DRAIN_MS = 5_000;

type Ending = { code: 0; reason: string } | { code: 1; error: unknown };

/**
 * Reports to the parent process that the program serves, with its URL. Does nothing without a parent.
 */
export function reportReady(url?: string): void {
  if (process.send === undefined || !process.connected) return;
  process.send({ ready: true, ...(url === undefined ? {} : { url }) });
}

/** Runs the cleanups; returns false when one failed or timed out. */
async function drain(
  stops: (() => unknown)[],
  started: Promise<unknown>,
  log: Logger,
  limitMs: number,
): Promise<boolean> {
  let clean = true;
  const closeAll = async (): Promise<void> => {
    for (let stop = stops.pop(); stop !== undefined; stop = stops.pop()) {
      try {
        await stop();
      } catch (error) {
        clean = false;
        log.error({ err: error }, 'a cleanup failed');
      }
    }
  };
  // An interrupted start may still open resources, whose cleanups must run too.
  const all = closeAll()
    .then(() => started)
    .then(closeAll);
  const isInTime = await withTimeout(all, limitMs, () => new Error('late')).then(
    () => true,
    () => false,
  );
  return clean && isInTime;
}

function report(name: string, log: Logger, error: unknown): void {
  if (error instanceof OperatorError) {
    // A person at a terminal reads several problems more easily without JSON.
    if (process.stderr.isTTY) process.stderr.write(`${name}: ${error.message}\n`);
    else log.fatal(error.message);
  } else
    log.fatal(
      { err: error },
      error instanceof Error ? error.message : 'program stopped after an error',
    );
}

/** Logs what Node and libraries print: plain text breaks JSON lines, and an error may quote a password. */
function logPrinted(log: Logger): void {
  const printed =
    (level: 'warn' | 'error') =>
    (...values: unknown[]): void => {
      const err = values.find((one) => one instanceof Error);
      const text = format(...values.filter((one) => one !== err));
      log[level](err === undefined ? {} : { err }, text || err?.message);
    };
  const warn = printed('warn');
  Object.assign(console, { warn, error: printed('error') });
  process.removeAllListeners('warning').on('warning', warn);
}

/** `ended` resolves with the first of: a signal, the exit of the parent, an unhandled error, a call of `end`. */
function watchForEnd() {
  let end: (ending: Ending) => void = () => undefined;
  const ended = new Promise<Ending>((resolve) => {
    end = resolve;
  });
  const fail = (error: unknown): void => end({ code: 1, error });
  const onSignal = (signal: NodeJS.Signals): void => end({ code: 0, reason: signal });
  const onDisconnect = (): void => end({ code: 0, reason: 'parent process exited' });
  const hasStarter = process.send !== undefined;
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  process.on('uncaughtException', fail).on('unhandledRejection', fail);
  if (hasStarter) process.on('disconnect', onDisconnect);
  // The parent may have exited while this program was loading.
  if (hasStarter && !process.connected) onDisconnect();
  return { end, ended, fail };
}

/**
 * Runs one program from start to exit code. The program drains on SIGTERM, on SIGINT and when its parent process exits,
 * and stops with 1 on an unhandled error. Only the first event counts: a terminal and npm both forward an interrupt, so
 * one keystroke sends two signals.
 */
export async function runProgram(
  name: string,
  main: (ctx: ProgramContext) => Promise<void>,
  options: ProgramOptions = {},
): Promise<0 | 1> {
  const { untilMainReturns = false, logLevel = 'info' } = options;
  let drainMs = options.drainMs ?? 25_000;
  const log = logger(name, readLogLevel(logLevel));
  logPrinted(log);
  const startedAt = performance.now();
  const stopping = new AbortController();
  const stops: (() => unknown)[] = [];
  const { end, ended, fail } = watchForEnd();
  const onStop = (stop: () => unknown): void => void stops.push(stop);
  const drainAs: ProgramContext['drainAs'] = ({ delayMs, deadlineMs }) => {
    drainMs = delayMs + (deadlineMs ?? drainMs);
  };
  let hasReturned = false;
  const started = main({ signal: stopping.signal, log, onStop, drainAs, fail }).then(() => {
    hasReturned = true;
    if (untilMainReturns) end({ code: 0, reason: 'done' });
    else if (!stopping.signal.aborted) {
      log.info({ ms: Math.round(performance.now() - startedAt) }, 'started');
    }
  }, fail);

  // Keeps the event loop alive until the program is stopped.
  const stayUp = setInterval(() => undefined, 2 ** 30);
  const ending = await ended;
  stopping.abort();
  if (ending.code === 1) report(name, log, ending.error);
  else if (!untilMainReturns) log.info({ reason: ending.reason }, 'stopping');
  // After an unhandled error cleanups may hang, and a quick restart is more important than the cleanups.
  const limitMs = ending.code === 0 ? drainMs : Math.min(drainMs, FAILED_DRAIN_MS);
  const began = performance.now();
  const clean = await drain(stops, started, log, limitMs);
  if (!clean) log.error('shutdown incomplete: a cleanup failed or timed out');
  const isDone = hasReturned || !untilMainReturns;
  if (ending.code === 0 && !isDone) log.error('program stopped before its work was complete');
  clearInterval(stayUp);
  const isClean = ending.code === 0 && clean && isDone;
  // A failed start logs only its error.
  if (!untilMainReturns && (isClean || hasReturned)) {
    const reason = ending.code === 0 ? ending.reason : 'error';
    const ms = Math.round(performance.now() - began);
    log[isClean ? 'info' : 'error']({ reason, ms }, 'stopped');
  }
  // Signal handlers stay installed, because without them a signal before the exit would kill the
  // process.
  return isClean ? 0 : 1;
}
