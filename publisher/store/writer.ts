import { equalBytes } from '#protocol/bytes';
import type { SnapshotStore } from '#runtime/store/store';
import { FatalPublishError, LeaseLostError } from '../errors.js';

/** A file of the snapshot whose name determines its content. */
export interface PublishedFile {
  path: string;
  bytes: Uint8Array;
  /** Whether to replace different content: a page is named by its hash, so such content is damaged. */
  replaces: boolean;
}

const AT_ONCE = 16;

/** The only writer of the snapshot. */
export class SnapshotWriter {
  bytesWritten = 0;
  filesWritten = 0;

  constructor(private readonly store: SnapshotStore) {}

  /** Only for the holder of the lease. */
  prepare(): Promise<void> {
    return this.store.prepare();
  }

  /** Writes each file atomically, in any order. All files are durable when this returns. */
  async put(files: readonly PublishedFile[]): Promise<void> {
    const waiting = [...files];
    const results = await Promise.allSettled(
      Array.from({ length: Math.min(AT_ONCE, files.length) }, async () => {
        for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
          await this.putOne(file);
        }
      }),
    );
    // Reports a failure only after every write has ended.
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    await this.store.sync(files.map(({ path }) => path));
  }

  /**
   * Replaces a file that readers fetch by a fixed name. It is durable when this returns.
   *
   * @param present the content that the file must still have; null: the file must not exist
   * @throws LeaseLostError when the file has different content
   */
  async replace(path: string, bytes: Uint8Array, present: Uint8Array | null): Promise<void> {
    if (!(await this.store.replace(path, bytes, present))) {
      throw new LeaseLostError(`another publisher replaced ${path} first`);
    }
    this.count(bytes);
    await this.store.sync([path]);
  }

  private async putOne({ path, bytes, replaces }: PublishedFile): Promise<void> {
    const present = await this.store.create(path, bytes);
    if (present === null) return this.count(bytes);
    if (equalBytes(present, bytes)) return;
    if (replaces) return this.replace(path, bytes, present);
    throw new FatalPublishError(
      'published_file_differs',
      `${path} in ${this.store.where} is published with different content than the registry yields now, and a published file must never change. ` +
        'Compare the file with the registry: if the file was damaged, delete it and start the publisher again, which rewrites it; ' +
        'otherwise the registry has changed under the log, and this log must not be continued.',
    );
  }

  private count(bytes: Uint8Array): void {
    this.bytesWritten += bytes.length;
    this.filesWritten += 1;
  }
}
