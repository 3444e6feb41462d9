import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { withPath } from '../process/files.js';
import { sameBytes, type SnapshotStore } from './store.js';

/** Wraps each write, so that tests can make it fail before or after the file is in place. */
export type WriteStep = (path: string, write: () => Promise<void>) => Promise<void>;

const STAGING = '.staging';

/** A local directory: a file is staged, synced and renamed, and `sync` syncs every directory above it. */
export class DirectoryStore implements SnapshotStore {
  readonly where: string;
  private staged = 0;
  private prepared = false;
  /**
   * Staged files have a prefix unique to this process: a suspended process may resume without the
   * lease and write its own files.
   */
  private readonly prefix = randomBytes(8).toString('hex');

  constructor(
    readonly directory: string,
    private readonly step: WriteStep = (_path, write) => write(),
  ) {
    this.where = directory;
  }

  /**
   * Removes staged files of crashed publishers, once. Does not create the staging directory again: without it
   * every write fails, so a running publisher writes nothing into the mount point of a lost disk.
   */
  async prepare(): Promise<void> {
    if (this.prepared) return;
    const staging = join(this.directory, STAGING);
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging, { recursive: true });
    this.prepared = true;
  }

  async read(path: string): Promise<Uint8Array | null> {
    const file = join(this.directory, path);
    return unlessMissing(readFile(file), null).catch((error: unknown) => {
      throw withPath(error, file);
    });
  }

  async create(path: string, bytes: Uint8Array): Promise<Uint8Array | null> {
    const present = await this.read(path);
    if (present === null) await this.write(path, bytes);
    return present;
  }

  async replace(path: string, bytes: Uint8Array, present: Uint8Array | null): Promise<boolean> {
    const same = sameBytes(await this.read(path), present);
    if (same) await this.write(path, bytes);
    return same;
  }

  /** Also syncs every ancestor, because a crashed publisher may have left directory entries that are not durable. */
  async sync(paths: readonly string[]): Promise<void> {
    const directories = new Set<string>();
    for (let path of paths) {
      do directories.add((path = dirname(path)));
      while (path !== '.');
    }
    await Promise.all([...directories].map((path) => syncDirectory(join(this.directory, path))));
  }

  async *list(folder: string): AsyncGenerator<string> {
    const reading = readdir(join(this.directory, folder), { withFileTypes: true });
    const entries = await unlessMissing(reading, []);
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) yield* this.list(path);
      else yield path;
    }
  }

  /** Removes folders of partial tiles too, once they are empty. */
  async remove(paths: readonly string[]): Promise<void> {
    for (const path of paths) await rm(join(this.directory, path), { force: true });
    const folders = new Set(paths.map(dirname).filter((folder) => folder.endsWith('.p')));
    for (const folder of folders) {
      await rmdir(join(this.directory, folder)).catch((error: unknown) => {
        if (!['ENOTEMPTY', 'ENOENT'].includes(codeOf(error))) throw error;
      });
    }
  }

  private async write(path: string, bytes: Uint8Array): Promise<void> {
    const target = join(this.directory, path);
    const staged = join(this.directory, STAGING, `${this.prefix}-${this.staged++}`);
    const put = async (): Promise<void> => {
      const handle = await open(staged, 'w');
      try {
        await handle.writeFile(bytes);
        await handle.sync();
      } finally {
        await handle.close();
      }
      if ((await unlessMissing(rename(staged, target), null)) !== null) return;
      await mkdir(dirname(target), { recursive: true });
      await rename(staged, target);
    };
    try {
      await this.step(path, put);
    } catch (error) {
      // Each attempt stages another file, so the files of failed attempts would keep a full disk full.
      await rm(staged, { force: true }).catch(() => undefined);
      throw withPath(error, target);
    }
  }
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? '';

async function unlessMissing<T, U>(reading: Promise<T>, otherwise: U): Promise<T | U> {
  try {
    return await reading;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return otherwise;
    throw error;
  }
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
