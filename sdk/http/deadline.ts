import { SdkError } from '../errors.js';
import { DEFAULT_TIMEOUT_MS, type CallOptions } from '../options.js';

/** A longer timer would fire immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const timerMs = (ms: number): number => Math.min(ms, MAX_TIMER_MS);

export interface Deadline {
  readonly signal: AbortSignal;
  remainingMs(): number;
  sleep(ms: number): Promise<void>;
  /** The error of a fired signal: `aborted` or `timeout`. */
  error(cause?: unknown): SdkError;
  close(): void;
}

export function openDeadline({ signal: caller, timeoutMs }: CallOptions): Deadline {
  const allowed = timeoutMs ?? DEFAULT_TIMEOUT_MS;
  if (!(allowed > 0)) throw new SdkError('invalid_input', 'timeoutMs must be above 0');
  const end = performance.now() + allowed;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const timer = allowed <= MAX_TIMER_MS ? setTimeout(abort, allowed) : undefined;
  if (caller?.aborted === true) abort();
  caller?.addEventListener('abort', abort, { once: true });

  const error = (cause?: unknown): SdkError => {
    if (caller?.aborted === true) {
      return new SdkError('aborted', 'the call was aborted', { cause: caller.reason });
    }
    return new SdkError('timeout', `the call took longer than ${String(allowed)} ms`, { cause });
  };

  return {
    signal: controller.signal,
    remainingMs: () => Math.max(0, end - performance.now()),
    sleep: (ms) =>
      new Promise((resolve, reject) => {
        const wake = (): void => {
          clearTimeout(sleeping);
          controller.signal.removeEventListener('abort', wake);
          if (controller.signal.aborted) reject(error());
          else resolve();
        };
        const sleeping = setTimeout(wake, timerMs(ms));
        if (controller.signal.aborted) wake();
        else controller.signal.addEventListener('abort', wake, { once: true });
      }),
    error,
    close: () => {
      clearTimeout(timer);
      caller?.removeEventListener('abort', abort);
    },
  };
}

/** Runs a call with a deadline, and removes its timer and listener afterwards. */
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
