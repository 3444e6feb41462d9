import { ProtocolError } from '#protocol/errors';
import { runLookup, type Lookup, type SegmentRead } from '#protocol/snapshot/find';
import type { SnapshotSource } from './source.js';

/**
 * Runs a lookup on a source; synchronous when the source is. Drops only the piece that failed
 * verification: the next lookup reads repaired content, and requests for a damaged piece cannot flush
 * the cache.
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
