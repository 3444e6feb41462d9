import type { OpenedManifest } from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Findings } from '../findings.js';
import type { SnapshotFiles } from './source.js';

/** What the checks of the snapshot work with. */
export interface SnapshotContext {
  files: SnapshotFiles;
  findings: Findings;
  /** The pinned keys. Nothing else is believed. */
  trust: SnapshotTrust;
  /** Epoch milliseconds. */
  now(): number;
  /** How long a manifest may go on asserting after the verifier last looked, in milliseconds. */
  snapshotTtlMs: number;
}

/** The same, of one manifest. */
export interface PublishedContext extends SnapshotContext {
  opened: OpenedManifest;
}
