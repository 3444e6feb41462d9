import { sha256 } from '@noble/hashes/sha2.js';
import { toHex, utf8 } from '../../protocol/bytes.js';
import { attempt } from '../../protocol/errors.js';
import type { JsonValue } from '../../protocol/json.js';
import { canonicalHash, canonicalJson } from '../canonical.js';
import type { Outcome } from './options.js';

/** Called once, at the end of a stream. Never rejects. */
type OnEnd = (outcome: Outcome) => Promise<void>;

type Stream = AsyncGenerator<unknown, unknown, unknown>;

/**
 * Passes a stream or a generator through, and calls `onEnd` at its end, with `failed` after an error or when the
 * consumer stops early. The result hash covers the list of all items, with the return value of a generator as the last
 * item. Null for a result that is not a stream.
 *
 * @param beforeBody called at the first read; if it throws, the stream ends without a read of the result
 */
export function followStream(
  result: unknown,
  onEnd: OnEnd,
  beforeBody: () => void = () => undefined,
): object | null {
  if (isReadable(result)) return followReadable(result, onEnd, beforeBody);
  const followed = isAsyncGenerator(result)
    ? followAsync(result, onEnd, beforeBody)
    : isGenerator(result)
      ? followSync(result, onEnd, beforeBody)
      : null;
  // Starts the body: a generator that was never started ends without its `finally`.
  void followed?.next();
  return followed;
}

/** Whether `followStream` follows this result. */
export const isStream = (value: unknown): boolean =>
  isReadable(value) || isAsyncGenerator(value) || isGenerator(value);

/** Excludes a locked stream, whose items another reader gets. */
const isReadable = (value: unknown): value is ReadableStream =>
  value instanceof ReadableStream && !value.locked;

export const isAsyncGenerator = (value: unknown): value is Stream =>
  hasMethods(value, Symbol.asyncIterator, 'next', 'return', 'throw');

const isGenerator = (value: unknown): value is Generator =>
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

function followReadable(
  source: ReadableStream<unknown>,
  onEnd: OnEnd,
  beforeBody: () => void,
): ReadableStream<unknown> {
  const reader = source.getReader();
  const list = openListHash();
  let ended: Promise<void> | undefined;
  const end = (outcome: Outcome): Promise<void> => (ended ??= onEnd(outcome));
  let isRead = false;
  return new ReadableStream<unknown>(
    {
      pull: async (controller) => {
        try {
          if (!isRead) beforeBody();
          isRead = true;
          const { done, value } = await reader.read();
          if (done) {
            await end({ result: 'succeeded', resultHash: list.digest() });
            return controller.close();
          }
          list.add(value);
          controller.enqueue(value);
        } catch (error) {
          const failed = end({ result: 'failed' });
          if (!isRead) await reader.cancel(error).catch(() => undefined);
          await failed;
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

/** {@link canonicalHash} of a value of unknown type. */
export const plainHash = (value: unknown): string => canonicalHash(value as JsonValue);

/** Like {@link plainHash}, but undefined for a value that is not plain JSON. */
export function resultHash(value: unknown): string | undefined {
  return attempt(() => plainHash(value));
}

/** The hash of a list whose items arrive one by one. Keeps no items in memory. */
export function openListHash() {
  const hash = sha256.create();
  let separator = '[';
  let isPlain = true;
  return {
    add: (item: unknown): void => {
      if (!isPlain) return;
      try {
        hash.update(utf8(separator + canonicalJson(item as JsonValue)));
        separator = ',';
      } catch {
        isPlain = false;
      }
    },
    /** Hash of the items so far as a JSON array; undefined after an item that is not plain JSON. */
    digest: (): string | undefined => {
      if (!isPlain) return undefined;
      const end = utf8(separator === '[' ? '[]' : ']');
      return toHex(hash.clone().update(end).digest());
    },
  };
}
