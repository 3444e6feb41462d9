import { closeSync, openSync, readSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { malformed } from '#protocol/snapshot/malformed';
import { MANIFEST_PATH, segmentPath } from '#protocol/snapshot/manifest';
import type { SegmentRead } from '#protocol/snapshot/find';

/** Where a snapshot is read from. Nothing that it returns is believed before it is checked. */
export interface SnapshotSource {
  /** The manifest as it is now; null when there is none. */
  manifest(): Promise<Uint8Array | null>;
  /** A file of the log by its path in the snapshot; null when there is none. */
  logFile(path: string): Promise<Uint8Array | null>;
  /** Exactly the wanted bytes; throws when it cannot have them. */
  read(wanted: SegmentRead): Uint8Array | Promise<Uint8Array>;
  /**
   * Drops what is kept of files. Called when something that was read turned out wrong, so that a
   * source that was mended is read anew.
   */
  forget(): void;
  close(): void;
}

/** Open files that are kept; segments never change, so a descriptor stays good for ever. */
const OPEN_FILES = 256;

/**
 * A directory on this machine. Segments are read synchronously: they come from the page cache
 * nearly always, and a trip to the thread pool costs more than the read.
 */
export function directorySource(root: string): SnapshotSource {
  const open = new Map<string, number>();

  function descriptor(segment: string): number {
    const known = open.get(segment);
    if (known !== undefined) return known;
    const file = openSync(join(root, segmentPath(segment)), 'r');
    if (open.size >= OPEN_FILES) closeOldest();
    open.set(segment, file);
    return file;
  }

  function closeOldest(): void {
    for (const [segment, file] of open) {
      open.delete(segment);
      closeSync(file);
      return;
    }
  }

  function closeAll(): void {
    while (open.size > 0) closeOldest();
  }

  async function wholeFile(path: string): Promise<Uint8Array | null> {
    try {
      return await readFile(join(root, path));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR') return null;
      throw error;
    }
  }

  return {
    manifest: () => wholeFile(MANIFEST_PATH),
    logFile: wholeFile,
    read({ segment, offset, length }) {
      const bytes = Buffer.allocUnsafe(length);
      if (readSync(descriptor(segment), bytes, 0, length, offset) !== length) {
        throw malformed(`segment ${segment} is cut short`);
      }
      return bytes;
    },
    forget: closeAll,
    close: closeAll,
  };
}
