import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PageId } from '#protocol/map/page';
import { HASH_BYTES } from '#protocol/merkle';
import { LOCATION_PATH, malformed, pagePath } from '#protocol/snapshot/location';
import {
  decodeEntryBundle,
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
  tileWidth,
} from '#protocol/tiles';
import { withPath } from '#runtime/process/files';

/** A directory or server with a snapshot, whose bytes are untrusted until verified. */
export interface SnapshotSource {
  /** The kind of source, which `/readyz` shows in place of the location. */
  readonly kind: 'directory' | 'http' | 'bucket';
  /** The file `lookup/snapshot`, which locates the newest snapshot; null before the first publication. */
  location(): Promise<Uint8Array | null>;
  /** Returns null when the file is missing. The urgent reads of the poller do not queue behind lookups. */
  logFile(path: string, isUrgent?: boolean): Promise<Uint8Array | null>;
  /** Reads a page of a map; throws when it is missing. */
  page(page: PageId, isUrgent?: boolean): Uint8Array | Promise<Uint8Array>;
  close(): void;
}

/**
 * A local directory. Reads pages and the location synchronously: these files are nearly always in the page cache, and a
 * thread pool round trip costs more than the read.
 */
export function directorySource(root: string): SnapshotSource {
  async function unlessMissing(
    path: string,
    read: (file: string) => Uint8Array | Promise<Uint8Array>,
  ): Promise<Uint8Array | null> {
    const file = join(root, path);
    try {
      return await read(file);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR') return null;
      throw withPath(error, file);
    }
  }

  let last = { version: '', bytes: new Uint8Array() };
  /**
   * Reads the location only after a change. Opens the file each time, because a network file system
   * caches `stat`.
   */
  function readLocation(file: string): Uint8Array {
    const open = openSync(file, 'r');
    try {
      const { ino, size, mtimeNs, ctimeNs } = fstatSync(open, { bigint: true });
      const version = [ino, size, mtimeNs, ctimeNs].join();
      if (version !== last.version) last = { version, bytes: readFileSync(open) };
      return last.bytes;
    } finally {
      closeSync(open);
    }
  }

  return {
    kind: 'directory',
    location: () => unlessMissing(LOCATION_PATH, readLocation),
    logFile: (path) => unlessMissing(path, readFile),
    page: (page) => {
      const file = join(root, pagePath(page));
      try {
        return readFileSync(file);
      } catch (error) {
        throw withPath(error, file);
      }
    },
    close: () => undefined,
  };
}

type LogFiles = Pick<SnapshotSource, 'logFile'>;

/**
 * Reads a prefix of a wider file if necessary: the publisher writes partial tiles of signed trees
 * only, and deletes them once a checkpoint covers the full tile.
 */
async function readPrefix(
  source: LogFiles,
  pathOf: (width: number) => string,
  width: number,
  served: number,
  cut: (wider: Uint8Array) => Uint8Array,
): Promise<Uint8Array | null> {
  for (const stored of new Set([width, Math.max(width, served), TILE_WIDTH])) {
    const bytes = await source.logFile(pathOf(stored));
    if (bytes !== null) return stored === width ? bytes : cut(bytes);
  }
  return null;
}

export function readTile(
  source: LogFiles,
  level: number,
  index: number,
  width: number,
  servedSize = 0,
): Promise<Uint8Array | null> {
  const served = tileWidth(level, index, servedSize);
  const pathOf = (stored: number): string => tilePath(level, index, stored);
  const cut = (wider: Uint8Array): Uint8Array => wider.subarray(0, width * HASH_BYTES);
  return readPrefix(source, pathOf, width, served, cut);
}

/** Reads tiles for a Merkle proof; throws when one is missing or truncated. */
export function tileReader(source: LogFiles) {
  return async (level: number, index: number, width: number): Promise<Uint8Array> => {
    const hashes = await readTile(source, level, index, width);
    if (hashes?.length === width * HASH_BYTES) return hashes;
    throw malformed(`tile ${level}/${index} of ${width} hashes cannot be read`);
  };
}

export function readEntries(
  source: LogFiles,
  index: number,
  width: number,
  servedSize = 0,
): Promise<Uint8Array | null> {
  const served = tileWidth(0, index, servedSize);
  const pathOf = (stored: number): string => entriesPath(index, stored);
  return readPrefix(source, pathOf, width, served, (wider) =>
    encodeEntryBundle(decodeEntryBundle(wider).slice(0, width)),
  );
}
