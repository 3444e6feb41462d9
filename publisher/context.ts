import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import type { NoteSigner } from '#protocol/note';
import type { Manifest } from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { SnapshotDirectory } from './store/directory.js';
import type { PublishedIndex } from './store/index-parts.js';
import type { Janitor } from './store/janitor.js';
import type { Leadership } from './registry/lease.js';
import type { SnapshotWriter } from './store/writer.js';
import type { RegistryView } from './registry/registry-view.js';
import type { Replica } from './registry/replica.js';
import type { TreeHead } from './plan/tree.js';

/** Everything a tick uses. */
export interface CycleContext {
  registry: RegistryView;
  /** Where ticks read what they need not ask the registry itself; null: they ask it everything. */
  replica: Replica | null;
  directory: SnapshotDirectory;
  writer: SnapshotWriter;
  index: PublishedIndex;
  janitor: Janitor;
  leadership: Leadership;
  logSigner: NoteSigner;
  snapshotSigner: NoteSigner;
  trust: SnapshotTrust;
  kept: {
    /** The head that a checkpoint kept elsewhere holds the log to, until what extends it is published. */
    head: TreeHead | null;
    /** With the generation that this process published last, the last verdict that it looked at. */
    seen: { generation: number; verdictId: number } | null;
  };
  sha256: Sha256;
  verify: Ed25519Verify;
  clock: Clock;
  log: Logger;
  /** How long a manifest may go on asserting, in milliseconds. */
  snapshotTtlMs: number;
  recentLookupLimit: number;
  /** How many leaves are read and rendered at once; a multiple of 256. */
  chunkLeaves: number;
  /** Told of each manifest that is public. */
  onPublished?: (manifest: Manifest) => void;
}
