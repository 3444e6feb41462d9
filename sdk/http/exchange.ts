import { SdkError, type SdkErrorCode } from '../errors.js';
import { RETRY_DEFAULTS, type CallOptions, type RetryOptions } from '../options.js';
import { attempt, type Answer, type HttpCall } from './attempt.js';
import { backoffMs } from './backoff.js';
import type { Deadline } from './deadline.js';
import { refusal } from './refusal.js';

const REPEATED_STATUS: ReadonlySet<number> = new Set([429, 502, 503, 504]);
const REPEATED: ReadonlySet<SdkErrorCode> = new Set<SdkErrorCode>([
  'network',
  'timeout',
  'rate_limited',
  'unavailable',
]);

/** Makes requests, and repeats those that may have been lost. */
export type Exchange = (call: HttpCall, deadline: Deadline) => Promise<Answer>;

/**
 * Repeats after a network error, 429, 502, 503 and 504, and after nothing else: whatever else was
 * answered would be answered again. It waits as long as the service asks, else with a backoff, and
 * gives up at once when the time of the call would run out first.
 */
export function openExchange(options: CallOptions): Exchange {
  const retry = checked({ ...RETRY_DEFAULTS, ...defined(options.retry) });
  const fetcher = options.fetch ?? fetch;
  return async (call, deadline) => {
    for (let made = 1; ; made++) {
      const outcome = await outcomeOf(attempt(fetcher, call, deadline, retry.attemptTimeoutMs));
      if (!(outcome instanceof SdkError)) return outcome;
      if (!REPEATED.has(outcome.code) || deadline.signal.aborted) throw outcome;
      if (made >= retry.attempts) throw outcome;
      const asked = outcome.retryAfterMs ?? 0;
      const delay = Math.max(asked, backoffMs(made, retry, Math.random()));
      if (delay >= deadline.remainingMs()) throw outcome;
      await deadline.sleep(delay);
    }
  };
}

async function outcomeOf(answering: Promise<Answer>): Promise<Answer | SdkError> {
  try {
    const answer = await answering;
    return REPEATED_STATUS.has(answer.status) ? refusal(answer) : answer;
  } catch (error) {
    if (error instanceof SdkError) return error;
    throw error;
  }
}

function defined(retry: RetryOptions = {}): RetryOptions {
  return Object.fromEntries(Object.entries(retry).filter(([, value]) => value !== undefined));
}

/** With a NaN among them nothing would ever be given up, and nothing waited for. */
function checked(retry: Required<RetryOptions>): Required<RetryOptions> {
  const wrong = (Object.keys(RETRY_DEFAULTS) as (keyof RetryOptions)[]).find((name) => {
    const least = name === 'attempts' || name === 'attemptTimeoutMs' ? 1 : 0;
    return typeof retry[name] !== 'number' || !(retry[name] >= least);
  });
  if (wrong !== undefined) {
    throw new SdkError('invalid_input', `retry.${wrong} is no number that can be counted to`);
  }
  return retry;
}
