import { HASH_BYTES } from '#protocol/merkle';
import {
  decodeEntryBundle,
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
} from '#protocol/tiles';
import type { SnapshotSource } from '../snapshot/source.js';

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
