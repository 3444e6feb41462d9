import { SdkError } from '../errors.js';
import { DEFAULT_TIMEOUT_MS, type CallOptions } from '../options.js';

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** What a timer can be set to: one for longer would fire at once, and waiting become hammering. */
export function timerMs(ms: number): number {
  return Math.min(ms, LONGEST_TIMER_MS);
}

/** The time of one call, and its caller's wish to end it. */
export interface Deadline {
  /** Fires when the time is up or the caller aborts. */
  readonly signal: AbortSignal;
  remainingMs(): number;
  /** Waits; rejects as soon as the signal fires. */
  sleep(ms: number): Promise<void>;
  /** What to throw once the signal has fired: `aborted` or `timeout`. */
  fault(details?: { cause?: unknown; proofId?: string }): SdkError;
  close(): void;
}

export function openDeadline({ signal: caller, timeoutMs }: CallOptions): Deadline {
  const allowed = timeoutMs ?? DEFAULT_TIMEOUT_MS;
  if (!(allowed > 0)) throw new SdkError('invalid_input', 'timeoutMs is a number above 0');
  const end = performance.now() + allowed;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  // What is longer than a timer can be is as good as never.
  const timer = allowed <= LONGEST_TIMER_MS ? setTimeout(abort, allowed) : undefined;
  if (caller?.aborted === true) abort();
  caller?.addEventListener('abort', abort, { once: true });

  const fault: Deadline['fault'] = (details = {}) =>
    caller?.aborted === true
      ? new SdkError('aborted', 'the call was aborted', { ...details, cause: caller.reason })
      : new SdkError('timeout', `the call took longer than ${String(allowed)} ms`, details);

  return {
    signal: controller.signal,
    remainingMs: () => Math.max(0, end - performance.now()),
    sleep: (ms) =>
      new Promise((resolve, reject) => {
        const wake = (): void => {
          clearTimeout(sleeping);
          controller.signal.removeEventListener('abort', wake);
          if (controller.signal.aborted) reject(fault());
          else resolve();
        };
        const sleeping = setTimeout(wake, timerMs(ms));
        if (controller.signal.aborted) wake();
        else controller.signal.addEventListener('abort', wake, { once: true });
      }),
    fault,
    close: () => {
      clearTimeout(timer);
      caller?.removeEventListener('abort', abort);
    },
  };
}

/** Runs a call within its time, and leaves no timer and no listener behind. */
export async function withDeadline<T>(
  options: CallOptions,
  run: (deadline: Deadline) => Promise<T>,
): Promise<T> {
  const deadline = openDeadline(options);
  try {
    return await run(deadline);
  } finally {
    deadline.close();
  }
}
