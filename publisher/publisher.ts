import { formatVkey, keyId, type NoteSigner } from '#protocol/note';
import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import type { RetiredKeys } from '#protocol/snapshot/keys';
import type { Manifest } from '#protocol/snapshot/manifest';
import { pinKeys, type SnapshotTrust } from '#protocol/snapshot/trust';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { CycleContext } from './context.js';
import { keptCheckpoint, SnapshotDirectory } from './store/directory.js';
import { PublishedIndex } from './store/index-parts.js';
import { Janitor } from './store/janitor.js';
import { DirectoryLease, Leadership, type Lease } from './registry/lease.js';
import { SnapshotWriter, type WriteStep } from './store/writer.js';
import type { RegistryView } from './registry/registry-view.js';
import type { Replica } from './registry/replica.js';
import { Steps } from './steps.js';
import { runPublishCycle, type CycleReport } from './cycle.js';

/** A key that signs; the publisher needs no more of it. */
export interface Signer {
  publicKey: Uint8Array;
  sign: (message: Uint8Array) => Uint8Array;
}

export interface PublisherContext {
  registry: RegistryView;
  /** A copy of it to read from. */
  replica?: Replica;
  /** The snapshot directory. */
  directory: string;
  /** Name of the log, and first line of its checkpoints. */
  origin: string;
  /** Name of the snapshot key. */
  snapshotName: string;
  logKey: Signer;
  snapshotKey: Signer;
  /** Keys that signed for the same names before: what they signed is gone on from, never signed by. */
  retired?: RetiredKeys;
  sha256: Sha256;
  verify: Ed25519Verify;
  clock: Clock;
  log: Logger;
  snapshotTtlMs: number;
  recentLookupLimit: number;
  /** A signed checkpoint that was kept elsewhere: nothing is signed that does not extend it. */
  lastCheckpoint?: string;
  /** Claims besides the one on the directory. */
  claims?: Lease[];
  /** For tests: makes writes fail. */
  step?: WriteStep;
  /** For tests: fewer leaves at once. A multiple of 256. */
  chunkLeaves?: number;
  /** Told of each manifest that is public. */
  onPublished?: (manifest: Manifest) => void;
}

export interface Publisher {
  runCycle(): Promise<CycleReport>;
  /** Gives the leadership back; a later tick claims it again. No tick may be under way. */
  close(): Promise<void>;
  readonly trust: SnapshotTrust;
  /** Whether it led when it last looked. */
  isLeader(): boolean;
  /** Another number when a tick that is under way has gone on. */
  steps(): number;
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
  const steps = new Steps();
  const claims = [...(options.claims ?? []), new DirectoryLease(options.directory, options.log)];
  const ctx: CycleContext = {
    registry: steps.of(options.registry),
    replica: options.replica === undefined ? null : steps.ofReplica(options.replica),
    directory,
    writer,
    index: new PublishedIndex(sha256, directory),
    janitor: new Janitor(options.directory, sha256),
    leadership: new Leadership(claims),
    logSigner: signer(sha256, origin, options.logKey),
    snapshotSigner: signer(sha256, options.snapshotName, options.snapshotKey),
    trust,
    kept: { head: keptCheckpoint(options.lastCheckpoint, trust, verify), seen: null },
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
    steps: () => steps.count + writer.filesWritten,
    written: () => ({ bytes: writer.bytesWritten, files: writer.filesWritten }),
  };
}

function signer(sha256: Sha256, name: string, key: Signer): NoteSigner {
  return { name, keyHash: keyId(sha256, name, key.publicKey), sign: (text) => key.sign(text) };
}
