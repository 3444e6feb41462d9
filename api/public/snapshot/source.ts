import { closeSync, openSync, readSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { malformed } from '#protocol/snapshot/malformed';
import { MANIFEST_PATH, segmentPath } from '#protocol/snapshot/manifest';
import type { SegmentRead } from '#protocol/snapshot/find';
import { HASH_BYTES } from '#protocol/merkle';
import {
  decodeEntryBundle,
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
} from '#protocol/tiles';

/** Where a snapshot is read from. Its bytes are untrusted until verified. */
export interface SnapshotSource {
  /** Shown by `/readyz`, which must not reveal the location. */
  readonly kind: 'directory' | 'http';
  /** The current manifest; null before the first publication. */
  manifest(): Promise<Uint8Array | null>;
  /** Drops the cached manifest, which was rejected, so that the next read fetches it in full. */
  forgetManifest(): void;
  /**
   * Reads data that the snapshot keeps in memory, bypassing the cache. Throws as `read` does; the next
   * call may resume the transfer.
   */
  load(wanted: SegmentRead): Promise<Uint8Array>;
  /**
   * Reads a log file by its path in the snapshot; null when missing.
   *
   * @param isUrgent the poller needs it: do not queue it behind lookups
   */
  logFile(path: string, isUrgent?: boolean): Promise<Uint8Array | null>;
  /** Returns exactly the wanted bytes or throws. */
  read(wanted: SegmentRead): Uint8Array | Promise<Uint8Array>;
  /** Drops cached bytes that failed verification, so that the next read finds repaired content. */
  forget(wrong: SegmentRead): void;
  close(): void;
}

/** Cached file descriptors; segments are immutable. */
const OPEN_FILES = 256;

/**
 * A local directory. Reads segments synchronously: they are nearly always in the page cache, and a
 * thread pool round trip costs more than the read.
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
      throw malformed(`segment ${segment} is truncated`);
    }
    return bytes;
  }

  /** Closes the descriptor of a damaged segment: a repaired file may be under the same name. */
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

type LogFiles = Pick<SnapshotSource, 'logFile'>;

/**
 * Reads a tile at the given width, or null. The publisher deletes partial tiles once the full tile
 * exists; a partial tile is a prefix of the full one, so old URLs keep working.
 */
export async function readTile(
  source: LogFiles,
  level: number,
  index: number,
  width: number,
): Promise<Uint8Array | null> {
  const exact = await source.logFile(tilePath(level, index, width));
  if (exact !== null || width === TILE_WIDTH) return exact;
  const full = await source.logFile(tilePath(level, index));
  return full === null ? null : full.subarray(0, width * HASH_BYTES);
}

/** Reads tiles for a Merkle proof; throws when one is missing or truncated. */
export function tileReader(source: LogFiles) {
  return async (level: number, index: number, width: number): Promise<Uint8Array> => {
    const hashes = await readTile(source, level, index, width);
    if (hashes?.length === width * HASH_BYTES) return hashes;
    throw malformed(`tile ${level}/${index} of ${width} hashes cannot be read`);
  };
}

/** Reads an entry bundle at the given width, or null; see {@link readTile}. */
export async function readEntries(
  source: LogFiles,
  index: number,
  width: number,
): Promise<Uint8Array | null> {
  const exact = await source.logFile(entriesPath(index, width));
  if (exact !== null || width === TILE_WIDTH) return exact;
  const full = await source.logFile(entriesPath(index));
  return full === null ? null : encodeEntryBundle(decodeEntryBundle(full).slice(0, width));
}
