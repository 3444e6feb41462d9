import type { MapHead } from '#protocol/map/paged-map';
import type { NoteSigner } from '#protocol/note';
import type { OpenedLocation } from '#protocol/snapshot/location';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import type { LogState } from '#protocol/state/log-state';
import type { Clock } from '#runtime/clock';
import type { Logger } from '#runtime/process/log';
import type { LatestInputs } from '#sql/log/log';
import type { TreeHead, VerifiedTree } from './plan/tree.js';
import type { Signer } from '#runtime/crypto/node';
import type { Cosigner } from './cosigner.js';
import type { Leadership } from './registry/lease.js';
import type { RegistryView, Replica } from './registry/sql-registry.js';
import type { SnapshotReader, SnapshotWriter, Janitor } from './store/published-files.js';
import type { StoredMaps } from './store/maps.js';

/** The public state of the log at a size, with the share tokens and packages to publish with it. */
export interface PublicState {
  log: LogState;
  map: MapHead;
  shares: MapHead;
  /** The last change of tokens and packages that a cycle has read; 0 to apply all changes again. */
  shareChange: number;
  /** The ids of packages that `shares` lacks, because they wait for a member. */
  waiting: ReadonlySet<string>;
}

export interface PublisherSettings {
  registry: RegistryView;
  clock: Clock;
  /** Measures the ages of files and cosignatures. */
  monotonic: Clock;
  /** Longest validity of a snapshot, in milliseconds. */
  snapshotTtlMs: number;
  /** In seconds. */
  maxMergeDelay: number;
  recentLookupLimit: number;
  /** Called with the published snapshot at each cycle of the leader, and with each new snapshot. */
  onPublished?: (snapshot: OpenedLocation) => void;
}

export interface CycleContext extends PublisherSettings {
  /** The registry on the primary; in a cycle with a replica, `registry` reads mostly the replica. */
  primary: RegistryView;
  /** The source of most reads of a cycle; null when the primary serves all reads. */
  replica: Replica | null;
  reader: SnapshotReader;
  writer: SnapshotWriter;
  /** Requests cosignatures; null without a policy of witnesses. */
  cosigner: Cosigner | null;
  maps: StoredMaps;
  janitor: Janitor;
  leadership: Leadership;
  logSigner: Pick<NoteSigner, 'name' | 'keyHash'> & Pick<Signer, 'sign'>;
  /** The keys of the log: the current key, then earlier keys. */
  logKeys: PinnedKeys;
  memory: {
    /**
     * The head of `TRUSTED_CHECKPOINT`, or of a checkpoint that this process signed, until a snapshot that extends it is
     * published.
     */
    head: TreeHead | null;
    /** The checkpoint file when this cycle began. */
    note: string | null;
    /** The last tree, which caches the entries that it has read. */
    tree: VerifiedTree | null;
    /**
     * The last state whose pages this process stored, and the index of the snapshot entry that was
     * published then.
     */
    progress: { from: number | null; state: PublicState; head: TreeHead } | null;
    /** The inputs of the published snapshot, if the last cycle succeeded. */
    published: LatestInputs | null;
    /** Snapshot entries that this process appended since its last published snapshot, by index. */
    appended: Map<number, Uint8Array>;
  };
  log: Logger;
  /** Leaves that a cycle reads and applies at once; a multiple of 256. */
  chunkLeaves: number;
  /** The parameter `mostLeaves` of `reduce`, which has the default. */
  mostLeaves?: number;
  /** Reports progress, so that the watchdog can distinguish a long cycle from a stalled cycle. */
  progress(): void;
}
