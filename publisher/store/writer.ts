import { randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { FatalPublishError } from '../errors.js';

/** A file of the snapshot, by its path relative to the snapshot's root. */
export interface PublishedFile {
  path: string;
  bytes: Uint8Array;
  /** Whether the path is mutable: only the checkpoint and the manifest are. */
  replaces: boolean;
}

/**
 * Wraps each write to the snapshot, so that tests can make it fail before or after the file is in
 * place.
 */
export type WriteStep = (path: string, write: () => Promise<void>) => Promise<void>;

const AT_ONCE = 16;
const STAGING = '.staging';

/** The only writer of the snapshot directory. */
export class SnapshotWriter {
  bytesWritten = 0;
  filesWritten = 0;
  private staged = 0;
  private prepared = false;
  /**
   * Unique per process: a suspended process that resumes without the lease may still write its staged
   * files.
   */
  private readonly prefix = randomBytes(8).toString('hex');

  constructor(
    private readonly root: string,
    private readonly step: WriteStep = (_path, write) => write(),
  ) {}

  /** Removes staged files of crashed publishers. Call it only under the lease. */
  async prepare(): Promise<void> {
    if (this.prepared) return;
    await rm(join(this.root, STAGING), { recursive: true, force: true });
    await mkdir(join(this.root, STAGING), { recursive: true });
    this.prepared = true;
  }

  /**
   * Writes each file atomically; all are durable when this returns: stage, fsync, rename, then fsync of
   * every directory that got a name. The order within one call is undefined.
   */
  async put(files: readonly PublishedFile[]): Promise<void> {
    const directories = new Set<string>();
    const waiting = [...files];
    const results = await Promise.allSettled(
      Array.from({ length: Math.min(AT_ONCE, files.length) }, async () => {
        for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
          await this.putOne(file, directories);
        }
      }),
    );
    // Every write has ended before a failure is reported.
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    await Promise.all([...directories].map(syncDirectory));
  }

  private async putOne(file: PublishedFile, directories: Set<string>): Promise<void> {
    const target = join(this.root, file.path);
    // Every ancestor, even for an existing file: a crashed publisher may have left names that are not
    // durable.
    for (let path = file.path; path !== '.'; path = dirname(path)) {
      directories.add(join(this.root, dirname(path)));
    }
    if (!file.replaces && (await isPublished(target, file))) return;
    await this.step(file.path, async () => {
      await mkdir(dirname(target), { recursive: true });
      const staged = join(this.root, STAGING, `${this.prefix}-${this.staged++}`);
      const handle = await open(staged, 'w');
      try {
        await handle.writeFile(file.bytes);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(staged, target);
      this.bytesWritten += file.bytes.length;
      this.filesWritten += 1;
    });
  }
}

/** Whether an immutable file exists with this content. */
async function isPublished(target: string, file: PublishedFile): Promise<boolean> {
  let present: Buffer;
  try {
    present = await readFile(target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
  if (present.equals(file.bytes)) return true;
  throw new FatalPublishError(
    'published_file_differs',
    `${target} is published with different content than the registry yields now, and a published file must never change.  ` +
      'Compare the two: if the file was damaged on disk, delete it and start the publisher again, which rewrites it; ' +
      'otherwise the registry has changed under the log, and this log must not be continued.',
  );
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
