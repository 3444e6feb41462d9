import { HASH_BYTES } from '#protocol/merkle';
import {
  decodeEntryBundle,
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
} from '#protocol/tiles';
import type { SnapshotSource } from '../snapshot/source.js';

/** What of a source the log is read through. */
type LogFiles = Pick<SnapshotSource, 'logFile'>;

/**
 * A tile at the given width, or null. Partial tiles are taken away some time after the full one is
 * there; their content is its beginning, so their paths work for ever.
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

/** An entry bundle, likewise. */
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
