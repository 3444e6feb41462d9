import { isDeepStrictEqual } from 'node:util';
import { formatVkey, noteSigner, type LogVkey } from '#protocol/note';
import type { Signer } from '#runtime/crypto/key-uri';
import { pinKeys } from '#protocol/snapshot/trust';
import { withLogKeys } from '#protocol/state/log-keys';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Logger } from '#runtime/process/log';
import type { CycleContext, PublisherSettings } from './context.js';
import { LeaseLostError } from './errors.js';
import { trustedHead, SnapshotReader, SnapshotWriter } from './store/published-files.js';
import { Janitor } from './store/janitor.js';
import { StoredMaps } from './store/maps.js';
import { DirectoryLease, Leadership, type Lease } from './registry/lease.js';
import { Cosigner, type CosignerOptions } from './cosigner.js';
import { DirectoryStore, type WriteStep } from '#runtime/store/directory';
import type { SnapshotStore } from '#runtime/store/store';
import type { Replica } from './registry/sql-registry.js';
import { runPublishCycle, type CycleReport } from './cycle.js';

export interface PublisherContext extends PublisherSettings {
  replica?: Replica;
  directory: string | SnapshotStore;
  /** Name of the log, and first line of its checkpoints. */
  origin: string;
  logKey: Signer;
  /** The keys that the log names. Signatures by them are accepted, but only `logKey` signs. */
  logged?: readonly LogVkey[];
  log: Logger;
  /** `TRUSTED_CHECKPOINT`: the publisher signs only trees that extend it. */
  trustedCheckpoint?: string;
  /** Requests cosignatures of a policy's witnesses for each checkpoint. */
  witnesses?: Pick<CosignerOptions, 'policy' | 'onAnswer'>;
  /** Leases besides the lease on the directory. */
  leases?: Lease[];
  /** For tests: makes writes fail. */
  step?: WriteStep;
  /** For tests: leaves processed at once, a multiple of 256. */
  chunkLeaves?: number;
  /** For tests: the parameter `mostLeaves` of `reduce`. */
  mostLeaves?: number;
}

export type Publisher = ReturnType<typeof createPublisher>;

const CHUNK_LEAVES = 8192;

export function createPublisher(options: PublisherContext) {
  const { origin, logKey, replica = null, log, monotonic, witnesses } = options;
  const own = pinKeys(nativeSha256, [formatVkey(nativeSha256, origin, logKey.publicKey)]);
  const logKeys = withLogKeys(own, options.logged ?? []);
  const store =
    typeof options.directory === 'string'
      ? new DirectoryStore(options.directory, options.step)
      : options.directory;
  const reader = new SnapshotReader(store, logKeys);
  let steps = 0;
  const progress = (): void => {
    steps += 1;
  };
  const janitor = new Janitor(store, progress);
  const leases = [...(options.leases ?? [])];
  if (store.directory !== null) leases.push(new DirectoryLease(store.directory, log));
  const leadership = new Leadership(leases);
  const writer = new SnapshotWriter(store, async () => {
    await leadership.require();
    // After a failover, publishers on the old and on the new primary can both hold a lease.
    if (((await reader.checkpoint())?.note ?? null) !== ctx.memory.note)
      throw new LeaseLostError('another publisher replaced the checkpoint');
  });
  const cosigner =
    witnesses === undefined
      ? null
      : new Cosigner({ ...witnesses, reader, writer, leadership, monotonic, log });
  const ctx: CycleContext = {
    ...options,
    primary: options.registry,
    replica,
    reader,
    writer,
    cosigner,
    maps: new StoredMaps(reader, writer, janitor),
    janitor,
    leadership,
    logSigner: noteSigner(nativeSha256, origin, logKey),
    logKeys,
    memory: {
      note: null,
      head: trustedHead(options.trustedCheckpoint, logKeys),
      tree: null,
      progress: null,
      published: null,
      appended: new Map(),
    },
    chunkLeaves: options.chunkLeaves ?? CHUNK_LEAVES,
    progress,
  };
  return {
    logKeys,
    /** Whether this publisher held every lease at the last check. */
    isLeader: (): boolean => leadership.isLeading,
    runCycle: (): Promise<CycleReport> => runPublishCycle(ctx),
    /** Whether the last cycle published the registry's latest verdict, snapshot entry and share change. */
    isCurrent: async (): Promise<boolean> => {
      const { published } = ctx.memory;
      if (published === null || !leadership.isLeading) return false;
      return isDeepStrictEqual(await ctx.registry.latestInputs(), published);
    },
    /** Releases the leases; a later cycle takes them again. To be called between cycles. */
    close: async (): Promise<void> => {
      await cosigner?.stop();
      await leadership.release();
    },
    /** See {@link Cosigner.quorumAgeMs}; 0 without witnesses, because no witness can be late. */
    quorumAgeMs: (): number => cosigner?.quorumAgeMs ?? 0,
    /** A counter that changes while a cycle makes progress. */
    progress: (): number => steps + writer.filesWritten,
    /** What this publisher has written since its process started. */
    written: () => ({ bytes: writer.bytesWritten, files: writer.filesWritten }),
  };
}
