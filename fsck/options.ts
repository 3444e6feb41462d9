import type { Vkey } from '#protocol/note';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Pool } from '#sql/db/transaction';
import type { FindingCode } from './codes.js';
import type { Finding } from './findings.js';
import type { SnapshotFiles } from './snapshot/source.js';
import type { StateStore } from './state.js';

export type Stage = 'public log' | 'leaves' | 'admissions' | 'index';

export interface FsckOptions {
  /** Null skips the database. */
  registry: { sql: Pool; logVkeys: readonly [Vkey, ...Vkey[]] } | null;
  /** Null skips the snapshot. */
  snapshot: { files: SnapshotFiles; trust: SnapshotTrust; snapshotTtlMs: number } | null;
  /** The age from which a pending admission is a finding, in milliseconds. */
  waitMs: number;
  state: StateStore;
  now(): number;
  /** Called with the progress of each stage. */
  progress: (stage: Stage, done: number, total: number) => void;
  signal: AbortSignal;
  /** Leaves per step, held in memory by both halves: a multiple of 256. */
  chunkLeaves?: number;
  /** Interval between two saves of the state, in milliseconds. */
  saveEveryMs?: number;
}

export interface FsckResult {
  /** Every selected part was checked. */
  isComplete: boolean;
  isCorrupt: boolean;
  findings: readonly Finding[];
  counts: Partial<Record<FindingCode, number>>;
  unchecked: string[];
  leftOut: string[];
  /** Leaves of the database; null when skipped. */
  leaves: number | null;
  /** The contents of the snapshot; null when skipped or unreadable. */
  published: { generation: number; leaves: number; proofs: number } | null;
  /** The leaf where an earlier run was resumed; 0 for a new run. */
  resumedFrom: number;
}
