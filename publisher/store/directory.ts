import { closeSync, openSync, readSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fromUtf8 } from '#protocol/bytes';
import { type Checkpoint, openCheckpointNote } from '#protocol/checkpoint';
import type { SegmentRead } from '#protocol/snapshot/find';
import {
  CHECKPOINT_PATH,
  MANIFEST_PATH,
  type OpenedManifest,
  openManifest,
  segmentPath,
} from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import { nativeVerify } from '#runtime/crypto/node';
import { FatalPublishError, unknownSigner } from '../errors.js';
import type { TreeHead } from '../plan/tree.js';

/** The published manifest, verified with the pinned keys. */
export interface Published {
  manifestBytes: Uint8Array;
  opened: OpenedManifest;
}

export interface PublishedCheckpoint {
  note: string;
  checkpoint: Checkpoint;
}

/** Reads the snapshot directory, and accepts only data that verifies. */
export class SnapshotDirectory {
  constructor(
    readonly root: string,
    private readonly trust: SnapshotTrust,
  ) {}

  /** The published manifest, or null. */
  async manifest(): Promise<Published | null> {
    const manifestBytes = await this.read(MANIFEST_PATH);
    if (manifestBytes === null) return null;
    try {
      const opened = openManifest(nativeVerify, manifestBytes, this.trust);
      return { manifestBytes, opened };
    } catch (cause) {
      const where = join(this.root, MANIFEST_PATH);
      const unknown = unknownSigner(manifestBytes, this.trust.snapshot, 'SNAPSHOT', where, cause);
      if (unknown !== null) throw unknown;
      throw new FatalPublishError(
        'snapshot_unverifiable',
        `${where} is not signed by this publisher's snapshot key and log key. ` +
          'If the keys were changed on purpose, name the earlier ones in LOG_RETIRED_VKEYS and SNAPSHOT_RETIRED_VKEYS; ' +
          'if the directory belongs to another log, give this publisher an empty SNAPSHOT_DIR; ' +
          'otherwise another process has written there: find it before you start the publisher again.',
        { cause },
      );
    }
  }

  async manifestBytes(): Promise<Uint8Array | null> {
    return this.read(MANIFEST_PATH);
  }

  /**
   * The published checkpoint. It is written before the manifest, so after a crash it may be newer
   * than the manifest, and readers may have it.
   */
  async checkpoint(path = CHECKPOINT_PATH): Promise<PublishedCheckpoint | null> {
    const bytes = await this.read(path);
    if (bytes === null) return null;
    const { log } = this.trust;
    try {
      const note = fromUtf8(bytes);
      const { checkpoint } = openCheckpointNote(note, log, log[0].name, nativeVerify);
      return { note, checkpoint };
    } catch (cause) {
      const where = join(this.root, path);
      const unknown = unknownSigner(bytes, log, 'LOG', where, cause);
      if (unknown !== null) throw unknown;
      throw new FatalPublishError(
        'snapshot_unverifiable',
        `${where} is not signed by this publisher's log key. ` +
          'If the log key was changed on purpose, name the earlier one in LOG_RETIRED_VKEYS; another log needs a new LOG_ORIGIN and an empty SNAPSHOT_DIR.',
        { cause },
      );
    }
  }

  /** Reads a file; null if it does not exist. */
  async read(path: string): Promise<Uint8Array | null> {
    try {
      return await readFile(join(this.root, path));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  }

  /** Reads a file that the manifest refers to. */
  async segment(name: string): Promise<Uint8Array> {
    const bytes = await this.read(segmentPath(name));
    if (bytes === null) throw this.damaged(`${segmentPath(name)} is missing`);
    return bytes;
  }

  /** Reads a range of a segment. */
  readSegment({ segment, offset, length }: SegmentRead): Uint8Array {
    let file: number;
    try {
      file = openSync(join(this.root, segmentPath(segment)), 'r');
    } catch (cause) {
      throw this.damaged(`${segmentPath(segment)} cannot be opened`, cause);
    }
    try {
      const bytes = new Uint8Array(length);
      if (readSync(file, bytes, 0, length, offset) === length) return bytes;
      throw this.damaged(`${segmentPath(segment)} is cut short`);
    } finally {
      closeSync(file);
    }
  }

  damaged(what: string, cause?: unknown): FatalPublishError {
    return new FatalPublishError(
      'snapshot_damaged',
      `In ${this.root}, ${what}. Delete ${join(this.root, 'lookup')} and start the publisher again: the publisher rebuilds it from the registry, and the log beside it stays unchanged.`,
      { cause },
    );
  }
}

/**
 * The head of `TRUSTED_CHECKPOINT`. Only this head shows lost leaves when database and snapshot
 * directory were rolled back together.
 */
export function trustedHead(note: string | undefined, { log }: SnapshotTrust): TreeHead | null {
  if (note === undefined) return null;
  try {
    const { size, root } = openCheckpointNote(note, log, log[0].name, nativeVerify).checkpoint;
    return { size, root };
  } catch (cause) {
    throw new FatalPublishError(
      'checkpoint_unverifiable',
      `TRUSTED_CHECKPOINT is not a checkpoint of ${log[0].name} signed by this publisher's log key. ` +
        'Name one of this log; if its key was changed since, name the earlier one in LOG_RETIRED_VKEYS.',
      { cause },
    );
  }
}
