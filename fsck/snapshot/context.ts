import type { OpenedManifest } from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Findings } from '../findings.js';
import type { SnapshotFiles } from './source.js';

/** The context of the snapshot checks. */
export interface SnapshotContext {
  files: SnapshotFiles;
  findings: Findings;
  /** The pinned keys: only manifests signed by them count. */
  trust: SnapshotTrust;
  /** Epoch milliseconds. */
  now(): number;
  /** How long a manifest stays valid after the last expiry scan, in milliseconds. */
  snapshotTtlMs: number;
}

/** The context with an opened manifest. */
export interface PublishedContext extends SnapshotContext {
  opened: OpenedManifest;
}
