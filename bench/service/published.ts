import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MANIFEST_PATH, openManifest, type Manifest } from '#protocol/snapshot/manifest';
import { pinKeys } from '#protocol/snapshot/trust';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { BenchRegistry } from './registry.js';

/** The published manifest, under the pinned keys; null when there is none yet. */
export async function publishedManifest({
  snapshotDir,
  vkeys,
}: Pick<BenchRegistry, 'snapshotDir' | 'vkeys'>): Promise<Manifest | null> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(join(snapshotDir, MANIFEST_PATH));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  const trust = {
    log: pinKeys(nativeSha256, [vkeys.log]),
    snapshot: pinKeys(nativeSha256, [vkeys.snapshot]),
  };
  return openManifest(nativeVerify, bytes, trust).manifest;
}
