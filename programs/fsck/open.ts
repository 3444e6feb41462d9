import { stat } from 'node:fs/promises';
import { formatVkey } from '#protocol/note';
import { pinKeys, type PinnedKeys } from '#protocol/snapshot/trust';
import type { FsckOptions } from '#fsck/state';
import { snapshotDirectory, snapshotOrigin } from '#fsck/snapshot/source';
import type { FsckConfig, TrustedKey } from '#runtime/config';
import { loadSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { pinning } from '../trust.js';

/** Only the public key of a key file is used. */
export function trustedKeys(
  variable: string,
  key: TrustedKey,
  retired: readonly string[] = [],
): PinnedKeys {
  const vkeys =
    'vkeys' in key
      ? key.vkeys
      : [formatVkey(nativeSha256, key.name, loadSigningKey(key.keyFile).publicKey)];
  // During a rotation, the retired key is in both lists.
  const all = [...new Set([...vkeys, ...retired])];
  return pinning(`${variable}_VKEY`, () => pinKeys(nativeSha256, all));
}

export async function openSnapshot(
  config: FsckConfig,
  log: PinnedKeys,
): Promise<FsckOptions['snapshot']> {
  const { snapshotDir, snapshotUrl, snapshotTtl: snapshotTtlMs } = config;
  if (snapshotDir === null && snapshotUrl === null) return null;
  if (snapshotDir !== null && !(await isDirectory(snapshotDir))) {
    throw new OperatorError(`SNAPSHOT_DIR: ${snapshotDir} is not a directory`);
  }
  const trust = { log, snapshot: trustedKeys('SNAPSHOT', config.snapshotKey) };
  const files =
    snapshotUrl === null ? snapshotDirectory(snapshotDir ?? '') : snapshotOrigin(snapshotUrl);
  return { files, trust, snapshotTtlMs };
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

/** Names the database without credentials. */
export function databaseName(url: string): string {
  const { host, pathname } = new URL(url);
  return host + pathname;
}
