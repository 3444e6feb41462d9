import type { Outcome } from './outcome.js';
import { openListHash } from './plain-json.js';

/** Told once, when a stream is over. Never rejects. */
type OnEnd = (outcome: Outcome) => Promise<void>;

type Streamed = AsyncGenerator<unknown, unknown, unknown>;

/**
 * A result that comes over time is followed: its outcome is known when it is over, and a consumer
 * that stops early, or an error, makes it `failed`. `result_hash` is then of the list of what came, and
 * last what a generator returned. Null for a result that is no stream: any other object is handed on
 * as it is.
 */
export function followed(result: unknown, onEnd: OnEnd): object | null {
  if (result instanceof ReadableStream) return followedStream(result, onEnd);
  if (isAsyncGenerator(result)) return followedGenerator(result, onEnd);
  return null;
}

export function isAsyncGenerator(value: unknown): value is Streamed {
  return (
    typeof value === 'object' &&
    value !== null &&
    Symbol.asyncIterator in value &&
    ['next', 'return', 'throw'].every((name) => typeof Reflect.get(value, name) === 'function')
  );
}

async function* followedGenerator(source: Streamed, onEnd: OnEnd): Streamed {
  const list = openListHash();
  let outcome: Outcome = { result: 'failed' };
  const seen = async (stepping: Promise<IteratorResult<unknown>>) => {
    const step = await stepping;
    if (step.done !== true) list.add(step.value);
    return step;
  };
  const tapped = {
    next: (value?: unknown) => seen(source.next(value)),
    throw: (error: unknown) => seen(source.throw(error)),
    return: (value: unknown) => source.return(value),
    [Symbol.asyncIterator]: () => tapped,
  };
  try {
    const returned: unknown = yield* tapped;
    if (returned !== undefined) list.add(returned);
    outcome = { result: 'succeeded', resultHash: list.digest() };
    return returned;
  } finally {
    await onEnd(outcome);
  }
}

function followedStream(source: ReadableStream<unknown>, onEnd: OnEnd): ReadableStream<unknown> {
  const reader = source.getReader();
  const list = openListHash();
  return new ReadableStream<unknown>(
    {
      pull: async (controller) => {
        try {
          const { done, value } = await reader.read();
          if (done) {
            await onEnd({ result: 'succeeded', resultHash: list.digest() });
            return controller.close();
          }
          list.add(value);
          controller.enqueue(value);
        } catch (error) {
          await onEnd({ result: 'failed' });
          throw error;
        }
      },
      cancel: async (reason) => {
        try {
          await reader.cancel(reason);
        } finally {
          await onEnd({ result: 'failed' });
        }
      },
    },
    // Nothing is asked of the tool before somebody asks for it.
    { highWaterMark: 0 },
  );
}
