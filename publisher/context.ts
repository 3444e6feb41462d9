import type { NoteSigner } from '#protocol/note';
import type { Manifest } from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { SnapshotDirectory } from './store/directory.js';
import type { PublishedIndex } from './store/index-parts.js';
import type { Janitor } from './store/janitor.js';
import type { Leadership } from './registry/lease.js';
import type { Cosigner } from './cosigner.js';
import type { SnapshotWriter } from './store/writer.js';
import type { RegistryView, Replica } from './registry/sql-registry.js';
import type { TreeHead } from './plan/tree.js';

/** Dependencies of a publish cycle. */
export interface CycleContext {
  registry: RegistryView;
  /** Source of most reads of a cycle; null: the primary serves all of them. */
  replica: Replica | null;
  directory: SnapshotDirectory;
  writer: SnapshotWriter;
  /** Null without a policy of witnesses. */
  cosigner: Cosigner | null;
  index: PublishedIndex;
  janitor: Janitor;
  leadership: Leadership;
  logSigner: NoteSigner;
  snapshotSigner: NoteSigner;
  trust: SnapshotTrust;
  memory: {
    /** The head of `TRUSTED_CHECKPOINT`, until a snapshot that extends it is published. */
    head: TreeHead | null;
    /** The generation that this process published last, and the last verdict that it includes. */
    seen: { generation: number; verdictId: number } | null;
  };
  clock: Clock;
  log: Logger;
  /** Longest validity of a manifest, in milliseconds. */
  snapshotTtlMs: number;
  recentLookupLimit: number;
  /** Leaves read and rendered at once; a multiple of 256. */
  chunkLeaves: number;
  /** Counts a step, so that the watchdog can distinguish a long cycle from a hung one. */
  progress(): void;
  /** Called with each published manifest. */
  onPublished?: (manifest: Manifest) => void;
}
