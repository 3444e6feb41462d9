import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PageId } from '../../../protocol/map/page.js';
import { MemoryPages, pageName, type MapStore } from '../../../protocol/monitor/map-store.js';
import {
  decodeState,
  encodeState,
  newState,
  type MonitorState,
} from '../../../protocol/monitor/state.js';
import { UsageError } from '../config.js';
import { errno, readInput } from '../files.js';
import { isMissing } from './files.js';

/** Map pages in a directory, without fsync: a page that a crash damaged does not match its digest, and is rebuilt. */
export class DirectoryPages implements MapStore {
  private readonly stale = new Map<string, PageId>();

  constructor(private readonly directory: string) {}

  async read(page: PageId): Promise<Uint8Array> {
    const path = this.pathOf(page);
    return namingFile(path, readFile(path)).catch((error: Error) => {
      if (isMissing(error.cause)) return new Uint8Array(0);
      throw error;
    });
  }

  async write(page: PageId, bytes: Uint8Array): Promise<void> {
    this.stale.delete(pageName(page));
    const path = this.pathOf(page);
    await mkdir(dirname(path), { recursive: true });
    await namingFile(path, writeFile(path, bytes));
  }

  discard(pages: readonly PageId[]): void {
    for (const page of pages) this.stale.set(pageName(page), page);
  }

  /** Deletes discarded pages, once no stored state refers to them. */
  async prune(): Promise<void> {
    for (const page of this.stale.values()) await rm(this.pathOf(page), { force: true });
    this.stale.clear();
  }

  private pathOf(page: PageId): string {
    const name = pageName(page);
    return join(this.directory, name.slice(0, 4), name);
  }
}

/** @throws UsageError for a directory of another log, and for a directory that cannot be created or written */
export async function openStore(directory: string | undefined, origin: string) {
  if (directory === undefined) {
    const save = (): Promise<void> => Promise.resolve();
    return {
      pages: new MemoryPages(),
      state: newState(origin),
      save,
      saveAlarms: save,
      isNew: false,
    };
  }
  const file = join(directory, 'state.json');
  const pages = new DirectoryPages(join(directory, 'pages'));
  await mkdir(directory, { recursive: true }).catch((cause: unknown) => {
    throw new UsageError(`${directory} cannot be created: ${errno(cause)}`, { cause });
  });
  // Creates a file like a save, because not every restriction shows in the permissions of the directory.
  const probe = temporaryFor(file);
  try {
    await writeFile(probe, '', { flag: 'wx' });
    await rm(probe);
  } catch (cause) {
    throw new UsageError(`${directory} cannot be written: ${errno(cause)}`, { cause });
  }
  let version = await versionOf(file);
  const isNew = version === null;
  const state = await readState(file, origin);
  const replace = (next: MonitorState): Promise<void> =>
    writeDurably(file, encodeState(next), async (move) => {
      const unlock = await lockFile(`${file}.lock`);
      try {
        // Never replaces the state of another process, which may contain alarms that only that process found.
        const current = await versionOf(file);
        if (current === null && version !== null) {
          throw new UsageError(`${file} is lost: restore the file, or mount its disk again`);
        }
        if (current !== version) {
          throw new UsageError(
            `another process uses ${directory}: give each monitor its own directory`,
          );
        }
        await move();
        version = await versionOf(file);
      } finally {
        await unlock();
      }
    });
  const save = async (next: MonitorState): Promise<void> => {
    await replace(next);
    await pages.prune();
  };
  /**
   * Adds alarms to the saved state. The state of an interrupted pass must not be saved: it may be past entries whose
   * findings are not reported yet.
   */
  const saveAlarms = async (lasting: MonitorState['lasting']): Promise<void> =>
    replace({ ...(await readState(file, origin)), lasting });
  return { pages, state, save, saveAlarms, isNew };
}

const LOCK_POLL_MS = 50;
/** A lock protects two lookups and a rename, so a process that still has the lock after this time was killed or suspended. */
const STALE_LOCK_MS = 2_000;

/**
 * Creates a file that excludes other processes until the returned function deletes it. Waits while the file
 * exists, and deletes it once it is stale. Compares no clocks: those of a file server may differ. Not strict: a
 * process that was suspended with the lock may resume, and two processes may delete one stale file at once.
 */
async function lockFile(path: string): Promise<() => Promise<void>> {
  let seen: { version: string | null; at: number } = { version: null, at: 0 };
  for (;;) {
    try {
      await writeFile(path, '', { flag: 'wx' });
      return () => rm(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const version = await versionOf(path);
    if (version !== seen.version) seen = { version, at: performance.now() };
    else if (version !== null && performance.now() - seen.at > STALE_LOCK_MS) {
      await rm(path, { force: true });
    }
    await sleep(LOCK_POLL_MS);
  }
}

async function readState(file: string, origin: string): Promise<MonitorState> {
  const bytes = await readInput(file).catch((error: Error) => {
    if (isMissing(error.cause)) return null;
    throw error;
  });
  if (bytes === null) return newState(origin);
  let state: MonitorState;
  try {
    state = decodeState(bytes);
  } catch (cause) {
    throw new UsageError(
      `${file} is not a state file of this monitor, or a newer version wrote it: run that version, or choose another directory`,
      { cause },
    );
  }
  if (state.origin === origin) return state;
  throw new UsageError(`${file} belongs to the log ${state.origin}: choose another directory`);
}

/** Identifies the content of a file that is always replaced atomically; null for a missing file. */
async function versionOf(file: string): Promise<string | null> {
  try {
    const { ino, mtimeNs } = await stat(file, { bigint: true });
    return `${String(ino)} ${String(mtimeNs)}`;
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** Adds the path, which Node's error lacks when a read or write of an open file fails, as on a full disk. */
async function namingFile<T>(path: string, work: Promise<T>): Promise<T> {
  return work.catch((cause: unknown) => {
    throw new Error(`${path}: ${(cause as Error).message}`, { cause });
  });
}

const temporaryFor = (file: string): string => `${file}.${randomUUID()}.new`;

/** A save takes seconds, so a temporary file of this age is that of a killed process. */
const ABANDONED_MS = 3_600_000;

/**
 * Deletes the temporary files that killed processes left for `file`, as far as possible.
 *
 * @param now the time of the file server, whose clock may differ from that of this machine
 */
async function removeAbandoned(file: string, now: number): Promise<void> {
  for (const name of await readdir(dirname(file))) {
    if (!name.startsWith(`${basename(file)}.`) || !/\.[0-9a-f-]{36}\.new$/.test(name)) continue;
    const path = join(dirname(file), name);
    try {
      if (now - (await stat(path)).mtimeMs > ABANDONED_MS) await rm(path);
    } catch {
      // The file belongs to another user, or another process deleted it. The save can continue.
    }
  }
}

/**
 * Replaces a file atomically: after a crash, the monitor must know the checkpoint that it saw.
 *
 * @param guard runs the replacement, or throws
 */
async function writeDurably(
  file: string,
  bytes: Uint8Array,
  guard: (replace: () => Promise<void>) => Promise<void>,
): Promise<void> {
  const unfinished = temporaryFor(file);
  const next = await open(unfinished, 'wx', 0o600);
  try {
    await removeAbandoned(file, (await next.stat()).mtimeMs);
    await namingFile(file, next.writeFile(bytes));
    await namingFile(file, next.sync());
    await guard(() => rename(unfinished, file));
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  } finally {
    await next.close();
  }
  const directory = await open(dirname(file));
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
