import { open, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { HASH_BYTES } from '#protocol/merkle';
import { decodeFileLine, FILE_BYTES, partLayout } from '#protocol/snapshot/index-part';
import {
  CHECKPOINT_PATH,
  MANIFEST_PATH,
  openManifest,
  segmentPath,
  type IndexPartPin,
  type Manifest,
} from '#protocol/snapshot/manifest';
import { pinKeys } from '#protocol/snapshot/trust';
import { entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { BenchRegistry } from './registry.js';

export type Published = Pick<BenchRegistry, 'snapshotDir' | 'vkeys'>;

/**
 * The published manifest, verified under the pinned keys.
 *
 * @throws Error before the first publication
 */
export async function publishedManifest({ snapshotDir, vkeys }: Published): Promise<Manifest> {
  const trust = {
    log: pinKeys(nativeSha256, [vkeys.log]),
    snapshot: pinKeys(nativeSha256, [vkeys.snapshot]),
  };
  const bytes = await readFile(join(snapshotDir, MANIFEST_PATH));
  return openManifest(nativeVerify, bytes, trust).manifest;
}

/** Bytes of the files that a complete copy of the snapshot needs; replaced files are not counted. */
export async function liveBytes(snapshotDir: string, manifest: Manifest): Promise<number> {
  const sizeOf = async (path: string): Promise<number> =>
    (await stat(join(snapshotDir, path))).size;
  let bytes = (await sizeOf(MANIFEST_PATH)) + (await sizeOf(CHECKPOINT_PATH));
  bytes += manifest.keys.bytes + tileBytes(manifest.tree_size);
  for (let index = 0; index * TILE_WIDTH < manifest.tree_size; index += 1) {
    bytes += await sizeOf(entriesPath(index, tileWidth(0, index, manifest.tree_size)));
  }
  const bodies = new Map<string, number>();
  for (const pin of manifest.index_parts) {
    bytes += pin.bytes;
    for (const { name, bytes: length } of await bodiesOf(snapshotDir, pin)) {
      bodies.set(name, length);
    }
  }
  for (const length of bodies.values()) bytes += length;
  return bytes;
}

/** All tiles of a log: each level holds the hashes of the full tiles below it. */
function tileBytes(treeSize: number): number {
  let bytes = 0;
  for (let hashes = treeSize; hashes > 0; hashes = Math.floor(hashes / TILE_WIDTH)) {
    bytes += hashes * HASH_BYTES;
  }
  return bytes;
}

async function bodiesOf(
  snapshotDir: string,
  pin: IndexPartPin,
): Promise<{ name: string; bytes: number }[]> {
  const { filesAt } = partLayout(pin.entries, pin.files);
  const table = Buffer.alloc(pin.files * FILE_BYTES);
  const file = await open(join(snapshotDir, segmentPath(pin.sha256)), 'r');
  try {
    await file.read(table, 0, table.length, filesAt);
  } finally {
    await file.close();
  }
  return Array.from({ length: pin.files }, (_, i) =>
    decodeFileLine(table.subarray(i * FILE_BYTES, (i + 1) * FILE_BYTES)),
  );
}
