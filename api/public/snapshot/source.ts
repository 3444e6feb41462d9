import { closeSync, openSync, readSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { malformed } from '#protocol/snapshot/malformed';
import { MANIFEST_PATH, segmentPath } from '#protocol/snapshot/manifest';
import type { SegmentRead } from '#protocol/snapshot/find';

/** Where a snapshot is read from. Nothing that it returns is believed before it is checked. */
export interface SnapshotSource {
  /** What it is, for `/readyz`: where it is stays inside. */
  readonly kind: 'directory' | 'http';
  /** The manifest as it is now; null when there is none. */
  manifest(): Promise<Uint8Array | null>;
  /** The manifest that was returned last is none to go by: it must not stand in for the next one. */
  forgetManifest(): void;
  /**
   * What a snapshot keeps in memory: it may be large, and is taken once. Throws as `read` does;
   * then the next call may go on where this one ended.
   */
  load(wanted: SegmentRead): Promise<Uint8Array>;
  /**
   * A file of the log by its path in the snapshot; null when there is none.
   *
   * @param isUrgent the snapshot waits for it: it is not to wait behind those who look things up
   */
  logFile(path: string, isUrgent?: boolean): Promise<Uint8Array | null>;
  /** Exactly the wanted bytes; throws when it cannot have them. */
  read(wanted: SegmentRead): Uint8Array | Promise<Uint8Array>;
  /** What was read there turned out wrong: if it is mended, the next read must find out. */
  forget(wrong: SegmentRead): void;
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

  function read({ segment, offset, length }: SegmentRead): Uint8Array {
    const bytes = Buffer.allocUnsafe(length);
    if (readSync(descriptor(segment), bytes, 0, length, offset) !== length) {
      throw malformed(`segment ${segment} is cut short`);
    }
    return bytes;
  }

  /** The file may have been put there anew, under the same name. */
  function forget({ segment }: SegmentRead): void {
    const known = open.get(segment);
    if (known === undefined) return;
    open.delete(segment);
    closeSync(known);
  }

  return {
    kind: 'directory',
    manifest: () => wholeFile(MANIFEST_PATH),
    forgetManifest: () => undefined,
    load: (wanted) => Promise.resolve(wanted).then(read),
    logFile: (path) => wholeFile(path),
    read,
    forget,
    close: closeAll,
  };
}
