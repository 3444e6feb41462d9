import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { decodeRefs, type PageId } from '#protocol/map/page';
import {
  CHECKPOINT_PATH,
  LOCATION_PATH,
  openLocation,
  pageIdOf,
  pagePath,
  type OpenedLocation,
} from '#protocol/snapshot/location';
import { pinKeys } from '#protocol/snapshot/trust';
import { entriesPath, tilePath, tilesBetween } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { BenchRegistry } from './registry.js';

/**
 * The location of the published snapshot, verified under the pinned key.
 *
 * @throws Error before the first publication
 */
export async function publishedLocation({
  snapshotDir,
  logVkey,
}: Pick<BenchRegistry, 'snapshotDir' | 'logVkey'>): Promise<OpenedLocation> {
  const bytes = await readFile(join(snapshotDir, LOCATION_PATH));
  const crypto = { sha256: nativeSha256, verify: nativeVerify };
  return openLocation(crypto, bytes, pinKeys(nativeSha256, [logVkey]));
}

/** Bytes of the files that a complete copy of the snapshot needs; replaced files are not counted. */
export async function liveBytes(
  snapshotDir: string,
  { location, checkpoint }: OpenedLocation,
): Promise<number> {
  const logPaths = tilesBetween(0, checkpoint.size).flatMap(({ level, index, width }) => {
    const tile = tilePath(level, index, width);
    return level === 0 ? [tile, entriesPath(index, width)] : [tile];
  });
  const paths = [LOCATION_PATH, CHECKPOINT_PATH, ...logPaths];
  let bytes = 0;
  for (const path of paths) bytes += (await stat(join(snapshotDir, path))).size;
  const pages = [location.map, location.shares].flatMap((page) => pageIdOf(page) ?? []);
  for (const page of pages) bytes += await mapBytes(snapshotDir, page);
  return bytes;
}

async function mapBytes(snapshotDir: string, top: PageId): Promise<number> {
  let bytes = 0;
  const pages = [top];
  for (let page = pages.pop(); page !== undefined; page = pages.pop()) {
    const file = join(snapshotDir, pagePath(page));
    if (page.level === 0) bytes += (await stat(file)).size;
    else {
      const content = await readFile(file);
      bytes += content.length;
      pages.push(...decodeRefs(page.level, content));
    }
  }
  return bytes;
}
