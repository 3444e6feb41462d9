import { equalBytes } from '#protocol/bytes';
import { type LogFiles, UnreachableError } from '#protocol/monitor/files';
import { OperatorError } from '../process/operator-error.js';

/**
 * Stores the files of a snapshot by their paths relative to its root. One publisher writes at a time;
 * with `create` and `replace`, a second publisher cannot replace a version that it did not read.
 */
export interface SnapshotStore {
  /** The directory or bucket, for messages. */
  readonly where: string;
  /** The path of the directory; null for a bucket. */
  readonly directory: string | null;
  /** To be called before the first write, by the holder of the leases. */
  prepare(): Promise<void>;
  /** Reads a file; null if it does not exist. */
  read(path: string): Promise<Uint8Array | null>;
  /** Writes a file atomically and returns null; returns the content if the file exists. */
  create(path: string, bytes: Uint8Array): Promise<Uint8Array | null>;
  /** Replaces a file atomically; false when its content is not `present` (null: no file). */
  replace(path: string, bytes: Uint8Array, present: Uint8Array | null): Promise<boolean>;
  /** Makes written files durable. */
  sync(paths: readonly string[]): Promise<void>;
  /** The paths below a folder, ascending. */
  list(folder: string): AsyncIterable<string>;
  remove(paths: readonly string[]): Promise<void>;
}

/** A request to the bucket failed. */
export class StoreError extends OperatorError {}

/** Whether two files have the same content; null is a missing file. */
export const sameBytes = (a: Uint8Array | null, b: Uint8Array | null): boolean =>
  a === null || b === null ? a === b : equalBytes(a, b);

export const filesIn = (store: SnapshotStore): LogFiles => ({
  where: store.where,
  read: async (path) => {
    try {
      return await store.read(path);
    } catch (cause) {
      throw new UnreachableError(`${path} cannot be read`, { cause });
    }
  },
});
