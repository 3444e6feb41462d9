import { ProtocolError } from '#protocol/errors';
import { runLookup, type Lookup, type SegmentRead } from '#protocol/snapshot/find';
import type { SnapshotSource } from './source.js';

/**
 * Runs a lookup on a source; no promise when the source never waits. A piece that turns out wrong
 * is dropped, that one alone: content that was mended is read anew by the next lookup, and asking
 * for what is broken costs nobody else what is kept for them.
 */
export function runOnSource<T>(source: SnapshotSource, lookup: Lookup<T>): T | Promise<T> {
  let last: SegmentRead | null = null;
  const read = (wanted: SegmentRead): Uint8Array | Promise<Uint8Array> => {
    last = wanted;
    return source.read(wanted);
  };
  const fail = (error: unknown): never => {
    if (error instanceof ProtocolError && last !== null) source.forget(last);
    throw error;
  };
  try {
    const result = runLookup(lookup, read);
    return result instanceof Promise ? result.catch(fail) : result;
  } catch (error) {
    return fail(error);
  }
}
