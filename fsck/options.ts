import type { Vkey } from '#protocol/note';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Pool } from '#sql/db/transaction';
import type { FindingCode } from './codes.js';
import type { Finding } from './findings.js';
import type { SnapshotFiles } from './snapshot/source.js';
import type { StateStore } from './state.js';

export type Stage = 'public log' | 'leaves' | 'admissions' | 'index';

export interface FsckOptions {
  /** Null leaves the database out. */
  registry: { sql: Pool; logVkeys: readonly [Vkey, ...Vkey[]] } | null;
  /** Null leaves the snapshot out. */
  snapshot: { files: SnapshotFiles; trust: SnapshotTrust; snapshotTtlMs: number } | null;
  /** How long an admission may wait to be settled before that is told, in milliseconds. */
  waitMs: number;
  state: StateStore;
  now(): number;
  /** Told of each stage how far it is. */
  progress: (stage: Stage, done: number, total: number) => void;
  signal: AbortSignal;
  /** Leaves in one go, which are held in memory of both halves: a multiple of 256. */
  chunkLeaves?: number;
  /** Milliseconds between two writings of the state. */
  saveEveryMs?: number;
}

export interface FsckResult {
  /** Whether everything was looked at that was to be. */
  isComplete: boolean;
  isCorrupt: boolean;
  findings: readonly Finding[];
  counts: Partial<Record<FindingCode, number>>;
  unchecked: string[];
  leftOut: string[];
  /** Leaves of the database; null when it was left out. */
  leaves: number | null;
  /** What the snapshot speaks of; null when it was left out or cannot be opened. */
  published: { generation: number; leaves: number; proofs: number } | null;
  /** The leaf from which an earlier run was gone on with; 0 when it began anew. */
  resumedFrom: number;
}
