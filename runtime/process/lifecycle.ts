import { threadsAreBack } from './busy-threads.js';
import { readLogLevel, type DrainConfig } from '../config.js';
import { logger, type Logger, type LogLevel } from './log.js';
import { isForOperator } from './operator-error.js';

export interface ProgramContext {
  /** Fires when the program has been asked to stop. */
  signal: AbortSignal;
  log: Logger;
  /** Registers what to close; at the end it runs in reverse order, each awaited. */
  onStop(stop: () => unknown): void;
  /**
   * Which rejections that nobody handles are no reason to end: a connection that is lost may be told of
   * also where nobody waits for it.
   */
  survives(isHarmless: (error: unknown) => boolean): void;
  /** Sets how long draining may take, where the configuration says it. */
  drainAs(drain: DrainConfig): void;
  /** Something the program cannot do without is gone: drain, and exit with 1. */
  fail(error: unknown): void;
}

export interface ProgramOptions {
  /** The longest that draining may take, in milliseconds. */
  drainMs?: number;
  /**
   * Exit when `main` returns, instead of staying up until a signal. A signal before that ends it with
   * 1: whoever waits for what it does must not take it for done.
   */
  untilMainReturns?: boolean;
  /** When LOG_LEVEL does not say. */
  logLevel?: LogLevel;
}

const FAILED_DRAIN_MS = 5_000;
/** What threads are given to come back, if nothing is left of the time to drain. */
const THREADS_MS = 250;

type Ending = { code: 0; reason: string } | { code: 1; error: unknown };

/** Tells the program that started us that we serve, and where; says nothing when nobody listens. */
export function reportReady(url?: string): void {
  if (process.send === undefined || !process.connected) return;
  process.send({ ready: true, ...(url === undefined ? {} : { url }) });
}

/** False when something could not be closed, or not in time. */
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
        log.error({ err: error }, 'closing failed');
      }
    }
  };
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(() => {
      clean = false;
      resolve();
    }, limitMs);
  });
  // A start that was interrupted may still be opening things: what it registers meanwhile is closed too.
  const all = closeAll()
    .then(() => started)
    .then(closeAll);
  await Promise.race([all, late]);
  clearTimeout(timer);
  return clean;
}

function report(name: string, log: Logger, error: unknown): void {
  if (isForOperator(error)) process.stderr.write(`${name}: ${error.message}\n`);
  else log.fatal({ err: error }, error instanceof Error ? error.message : 'stopped by an error');
}

/**
 * Runs one program from start to exit code, which the entry point hands to the system. It drains on
 * SIGTERM, on SIGINT and when the process that started it is gone, and stops with 1 on an error
 * that nobody handled. Of what comes after the first of these nothing makes it stop in another way:
 * a terminal and npm both pass an interrupt on, so that one keystroke is two signals.
 */
export async function runProgram(
  name: string,
  main: (ctx: ProgramContext) => Promise<void>,
  options: ProgramOptions = {},
): Promise<0 | 1> {
  const { untilMainReturns = false, logLevel = 'info' } = options;
  let drainMs = options.drainMs ?? 25_000;
  const log = logger(name, readLogLevel(logLevel));
  const stopping = new AbortController();
  const stops: (() => unknown)[] = [];

  let end: (ending: Ending) => void = () => undefined;
  const ended = new Promise<Ending>((resolve) => {
    end = resolve;
  });
  const fail = (error: unknown): void => end({ code: 1, error });
  let isHarmless = (_error: unknown): boolean => false;
  const onRejection = (error: unknown): void => {
    if (isHarmless(error)) log.warn({ err: error }, 'lost, with nobody waiting for it');
    else fail(error);
  };
  const onSignal = (signal: NodeJS.Signals): void => end({ code: 0, reason: signal });
  const onDisconnect = (): void => end({ code: 0, reason: 'its starter is gone' });
  const hasStarter = process.connected;

  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  process.on('uncaughtException', fail).on('unhandledRejection', onRejection);
  if (hasStarter) process.on('disconnect', onDisconnect);

  const onStop = (stop: () => unknown): void => void stops.push(stop);
  const survives: ProgramContext['survives'] = (judge) => {
    isHarmless = judge;
  };
  const drainAs: ProgramContext['drainAs'] = ({ delayMs, deadlineMs }) => {
    drainMs = delayMs + (deadlineMs ?? drainMs);
  };
  let hasReturned = false;
  const started = main({ signal: stopping.signal, log, onStop, survives, drainAs, fail }).then(
    () => {
      hasReturned = true;
      if (untilMainReturns) end({ code: 0, reason: 'done' });
    },
    fail,
  );

  // A program stays up until it is told otherwise, even at a moment when it waits for nothing.
  const stayUp = setInterval(() => undefined, 2 ** 30);
  const ending = await ended;
  stopping.abort();
  if (ending.code === 1) report(name, log, ending.error);
  else log.debug({ reason: ending.reason }, 'stopping');
  // After an error that nobody handled something may never answer again; a restart is worth more.
  const limitMs = ending.code === 0 ? drainMs : Math.min(drainMs, FAILED_DRAIN_MS);
  const deadline = performance.now() + limitMs;
  const clean = await drain(stops, started, log, limitMs);
  if (!clean) log.error('not everything was closed in time or in order');
  const isDone = hasReturned || !untilMainReturns;
  if (ending.code === 0 && !isDone) log.error('told to stop before its work was done');
  if (!(await threadsAreBack(Math.max(THREADS_MS, deadline - performance.now())))) {
    log.error('a file or a name server does not answer: ended by force');
    process.kill(process.pid, 'SIGKILL');
  }
  clearInterval(stayUp);
  // Nobody stops listening for signals: one that came between that and the exit would be the end.
  return ending.code === 0 && clean && isDone ? 0 : 1;
}
