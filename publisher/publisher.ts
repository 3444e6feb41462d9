import { formatVkey, keyId, type NoteSigner } from '#protocol/note';
import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import type { RetiredKeys } from '#protocol/snapshot/keys';
import type { Manifest } from '#protocol/snapshot/manifest';
import { pinKeys, type SnapshotTrust } from '#protocol/snapshot/trust';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { CycleContext } from './context.js';
import { trustedHead, SnapshotDirectory } from './store/directory.js';
import { PublishedIndex } from './store/index-parts.js';
import { Janitor } from './store/janitor.js';
import { DirectoryLease, Leadership, type Lease } from './registry/lease.js';
import { SnapshotWriter, type WriteStep } from './store/writer.js';
import type { RegistryView } from './registry/registry-view.js';
import type { Replica } from './registry/replica.js';
import { ProgressCounter } from './steps.js';
import { runPublishCycle, type CycleReport } from './cycle.js';

/** A signing key. */
export interface Signer {
  publicKey: Uint8Array;
  sign: (message: Uint8Array) => Uint8Array;
}

export interface PublisherContext {
  registry: RegistryView;
  /** A read replica of the registry. */
  replica?: Replica;
  /** The snapshot directory. */
  directory: string;
  /** Name of the log, and first line of its checkpoints. */
  origin: string;
  /** Name of the snapshot key. */
  snapshotName: string;
  logKey: Signer;
  snapshotKey: Signer;
  /** Earlier keys of the same names: their signatures are accepted, but they sign nothing new. */
  retired?: RetiredKeys;
  sha256: Sha256;
  verify: Ed25519Verify;
  clock: Clock;
  log: Logger;
  snapshotTtlMs: number;
  recentLookupLimit: number;
  /** `TRUSTED_CHECKPOINT`: the publisher signs only trees that extend it. */
  trustedCheckpoint?: string;
  /** Leases besides the one on the directory. */
  leases?: Lease[];
  /** For tests: makes writes fail. */
  step?: WriteStep;
  /** For tests: fewer leaves at once. A multiple of 256. */
  chunkLeaves?: number;
  /** Called with each published manifest. */
  onPublished?: (manifest: Manifest) => void;
}

export interface Publisher {
  runCycle(): Promise<CycleReport>;
  /** Releases the leases; a later cycle takes them again. Call it between cycles. */
  close(): Promise<void>;
  readonly trust: SnapshotTrust;
  /** Whether it held every lease at the last check. */
  isLeader(): boolean;
  /** A counter that changes while a cycle makes progress. */
  progress(): number;
  /** Totals since the start. */
  written(): { bytes: number; files: number };
}

const CHUNK_LEAVES = 8192;

export function createPublisher(options: PublisherContext): Publisher {
  const { sha256, verify, origin } = options;
  const trust: SnapshotTrust = {
    log: pinKeys(sha256, [
      formatVkey(sha256, origin, options.logKey.publicKey),
      ...(options.retired?.log ?? []),
    ]),
    snapshot: pinKeys(sha256, [
      formatVkey(sha256, options.snapshotName, options.snapshotKey.publicKey),
      ...(options.retired?.snapshot ?? []),
    ]),
  };
  const directory = new SnapshotDirectory(options.directory, sha256, verify, trust);
  const writer = new SnapshotWriter(options.directory, options.step);
  const progress = new ProgressCounter();
  const leases = [...(options.leases ?? []), new DirectoryLease(options.directory, options.log)];
  const ctx: CycleContext = {
    registry: progress.of(options.registry),
    replica: options.replica === undefined ? null : progress.ofReplica(options.replica),
    directory,
    writer,
    index: new PublishedIndex(sha256, directory),
    janitor: new Janitor(options.directory, sha256),
    leadership: new Leadership(leases),
    logSigner: signer(sha256, origin, options.logKey),
    snapshotSigner: signer(sha256, options.snapshotName, options.snapshotKey),
    trust,
    memory: { head: trustedHead(options.trustedCheckpoint, trust, verify), seen: null },
    sha256,
    verify,
    clock: options.clock,
    log: options.log,
    snapshotTtlMs: options.snapshotTtlMs,
    recentLookupLimit: options.recentLookupLimit,
    chunkLeaves: options.chunkLeaves ?? CHUNK_LEAVES,
    ...(options.onPublished && { onPublished: options.onPublished }),
  };
  return {
    trust,
    isLeader: () => ctx.leadership.isLeading,
    runCycle: () => runPublishCycle(ctx),
    close: () => ctx.leadership.release(),
    progress: () => progress.count + writer.filesWritten,
    written: () => ({ bytes: writer.bytesWritten, files: writer.filesWritten }),
  };
}

function signer(sha256: Sha256, name: string, key: Signer): NoteSigner {
  return { name, keyHash: keyId(sha256, name, key.publicKey), sign: (text) => key.sign(text) };
}
