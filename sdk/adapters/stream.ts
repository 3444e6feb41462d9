import type { Outcome } from './options.js';
import { openListHash } from './plain-json.js';

/** Called once, at the end of a stream. Never rejects. */
type OnEnd = (outcome: Outcome) => Promise<void>;

type Stream = AsyncGenerator<unknown, unknown, unknown>;

/**
 * Passes a stream or a generator through, and calls `onEnd` at its end, with `failed` after an error or when the
 * consumer stops early. The result hash covers the list of all items, with the return value of a generator as the
 * last. Null for a result that is not a stream.
 *
 * @param beforeBody called at the first read of a generator; if it throws, the generator does not run
 */
export function followStream(
  result: unknown,
  onEnd: OnEnd,
  beforeBody: () => void = () => undefined,
): object | null {
  // Another reader gets the items of a locked stream.
  if (result instanceof ReadableStream && !result.locked) return followReadable(result, onEnd);
  const followed = isAsyncGenerator(result)
    ? followAsync(result, onEnd, beforeBody)
    : isGenerator(result)
      ? followSync(result, onEnd, beforeBody)
      : null;
  // Starts the body: a generator that was never started ends without its `finally`.
  void followed?.next();
  return followed;
}

export const isAsyncGenerator = (value: unknown): value is Stream =>
  hasMethods(value, Symbol.asyncIterator, 'next', 'return', 'throw');

export const isGenerator = (value: unknown): value is Generator =>
  hasMethods(value, Symbol.iterator, 'next', 'return', 'throw');

function hasMethods(value: unknown, ...names: PropertyKey[]): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    // `get` alone is not enough: a `Proxy` may return a function for every name.
    names.every((name) => name in value && typeof Reflect.get(value, name) === 'function')
  );
}

async function* followAsync(source: Stream, onEnd: OnEnd, beforeBody: () => void): Stream {
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
  let isRead = false;
  try {
    yield;
    beforeBody();
    isRead = true;
    const returned: unknown = yield* tapped;
    if (returned !== undefined) list.add(returned);
    outcome = { result: 'succeeded', resultHash: list.digest() };
    return returned;
  } finally {
    try {
      if (!isRead) await source.return(undefined);
    } finally {
      await onEnd(outcome);
    }
  }
}

/** Like {@link followAsync}, but does not wait for `onEnd`: a synchronous reader cannot wait. */
function* followSync(source: Generator, onEnd: OnEnd, beforeBody: () => void): Generator {
  const list = openListHash();
  let outcome: Outcome = { result: 'failed' };
  const seen = (step: IteratorResult<unknown>) => {
    if (step.done !== true) list.add(step.value);
    return step;
  };
  const tapped = {
    next: (value?: unknown) => seen(source.next(value)),
    throw: (error: unknown) => seen(source.throw(error)),
    return: (value: unknown) => source.return(value),
    [Symbol.iterator]: () => tapped,
  };
  let isRead = false;
  try {
    yield;
    beforeBody();
    isRead = true;
    const returned: unknown = yield* tapped;
    if (returned !== undefined) list.add(returned);
    outcome = { result: 'succeeded', resultHash: list.digest() };
    return returned;
  } finally {
    try {
      if (!isRead) source.return(undefined);
    } finally {
      void onEnd(outcome);
    }
  }
}

function followReadable(source: ReadableStream<unknown>, onEnd: OnEnd): ReadableStream<unknown> {
  const reader = source.getReader();
  const list = openListHash();
  let ended: Promise<void> | undefined;
  const end = (outcome: Outcome): Promise<void> => (ended ??= onEnd(outcome));
  return new ReadableStream<unknown>(
    {
      pull: async (controller) => {
        try {
          const { done, value } = await reader.read();
          if (done) {
            await end({ result: 'succeeded', resultHash: list.digest() });
            return controller.close();
          }
          list.add(value);
          controller.enqueue(value);
        } catch (error) {
          await end({ result: 'failed' });
          throw error;
        }
      },
      cancel: async (reason) => {
        // Called before `reader.cancel`, after which a pending read sees a regular end and would record a success.
        const failed = end({ result: 'failed' });
        try {
          await reader.cancel(reason);
        } finally {
          await failed;
        }
      },
    },
    // Disables read-ahead: the stream of the tool is read only on demand.
    { highWaterMark: 0 },
  );
}
