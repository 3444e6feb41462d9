import { randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { FatalPublishError } from '../errors.js';

/** A file of the snapshot, by its path relative to the snapshot's root. */
export interface PublishedFile {
  path: string;
  bytes: Uint8Array;
  /**
   * Whether an existing file with other content is replaced: the checkpoint, the location, and a page,
   * which is damaged unless its name is its hash.
   */
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
   * Staged files have a prefix unique to this process: a suspended process may resume without the
   * lease and write its own.
   */
  private readonly prefix = randomBytes(8).toString('hex');

  constructor(
    private readonly root: string,
    private readonly step: WriteStep = (_path, write) => write(),
  ) {}

  /** Removes staged files of crashed publishers. Only for the holder of the lease. */
  async prepare(): Promise<void> {
    if (this.prepared) return;
    await rm(join(this.root, STAGING), { recursive: true, force: true });
    await mkdir(join(this.root, STAGING), { recursive: true });
    this.prepared = true;
  }

  /**
   * Writes each file atomically, in any order: stage, fsync, rename, then fsync of every directory
   * with a new name. All files are durable when this returns.
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
    // Reports a failure only after every write has ended.
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    await Promise.all([...directories].map(syncDirectory));
  }

  private async putOne(file: PublishedFile, directories: Set<string>): Promise<void> {
    const target = join(this.root, file.path);
    // Includes every ancestor, even of an existing file: a crashed publisher may have left names
    // that are not durable.
    for (let path = file.path; path !== '.'; path = dirname(path)) {
      directories.add(join(this.root, dirname(path)));
    }
    if (await isPublished(target, file)) return;
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

/** Whether the file exists with this content. */
async function isPublished(target: string, file: PublishedFile): Promise<boolean> {
  let present: Buffer;
  try {
    present = await readFile(target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
  if (present.equals(file.bytes)) return true;
  if (file.replaces) return false;
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
