import type { LogFiles } from '#protocol/monitor/files';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import type { Findings } from '../findings.js';

/** The context of the snapshot checks. */
export interface SnapshotContext {
  files: LogFiles;
  findings: Findings;
  /** The pinned keys: only checkpoints signed by them count. */
  log: PinnedKeys;
  /** Epoch milliseconds. */
  now(): number;
}
