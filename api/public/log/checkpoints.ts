import { equalBytes, fromUtf8 } from '#protocol/bytes';
import { type Checkpoint, openCheckpointNote } from '#protocol/checkpoint';
import { latestStatedTime } from '#protocol/cosignature';
import { hashHex } from '#protocol/hash';
import { COSIGNED_PATH } from '#protocol/snapshot/location';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { Clock } from '#runtime/clock';
import type { Snapshot } from '../snapshot/snapshot.js';
import type { SnapshotSource } from '../snapshot/source.js';

/** How long a cosigned checkpoint smaller than the snapshot is served: the origin could withhold newer checkpoints. */
const MAX_BEHIND_MS = 5 * 60_000;

/** Requests within this time share one read, so that their number does not load the origin. */
const READ_EVERY_MS = 1_000;

export interface ServedCheckpoint {
  note: string;
  checkpoint: Checkpoint;
}

interface CosignedCheckpoint extends ServedCheckpoint {
  /** Milliseconds since 1970, as the witnesses state. */
  cosignedAt: number;
}

interface SnapshotProof {
  snapshot: Snapshot;
  /** The checkpoint from which the proof was made. */
  note: string;
  text: string;
  tag: string;
}

/**
 * Chooses the checkpoint to serve: the newest cosigned checkpoint that the snapshot covers, else the snapshot's own,
 * without cosignatures.
 */
export class Checkpoints {
  private read: { at: number; file: Promise<CosignedCheckpoint | null> } | null = null;
  private cosigned: (ServedCheckpoint & { currentAt: number }) | null = null;
  /** The last result of `snapshotProof`, which every answer with evidence needs. */
  private proof: SnapshotProof | null = null;

  constructor(
    private readonly source: SnapshotSource,
    private readonly log: PinnedKeys,
    private readonly clock: Clock,
  ) {}

  /** @param leafIndex a leaf that the checkpoint must cover */
  async newest(snapshot: Snapshot, leafIndex = 0): Promise<ServedCheckpoint> {
    const own = {
      note: snapshot.checkpointNote,
      checkpoint: snapshot.opened.checkpoint,
    };
    const { size } = own.checkpoint;
    const now = this.clock.now();
    if (this.read === null || Math.abs(now - this.read.at) >= READ_EVERY_MS) {
      this.read = { at: now, file: this.published() };
    }
    const file = await this.read.file;
    const before = this.cosigned?.checkpoint.size ?? -1;
    if (file !== null && file.checkpoint.size <= size && file.checkpoint.size >= before) {
      // A checkpoint smaller than the snapshot's was last current when witnesses cosigned it, perhaps before this
      // server started.
      const isNew = file.checkpoint.size > before;
      const lastCurrentAt = isNew ? Math.min(now, file.cosignedAt) : this.cosigned!.currentAt;
      this.cosigned = { ...file, currentAt: file.checkpoint.size === size ? now : lastCurrentAt };
    }
    const { cosigned } = this;
    if (cosigned === null || leafIndex >= cosigned.checkpoint.size) return own;
    return now - cosigned.currentAt > MAX_BEHIND_MS ? own : cosigned;
  }

  /**
   * The tlog-proof of the snapshot entry, under a cosigned checkpoint of the same tree if one exists;
   * `tag` distinguishes the proofs of one entry.
   */
  async snapshotProof(snapshot: Snapshot): Promise<SnapshotProof> {
    const { location, checkpoint: own } = snapshot.opened;
    const { note, checkpoint } = await this.newest(snapshot, snapshot.generation);
    const { proof } = this;
    if (proof?.snapshot === snapshot && proof.note === note) return proof;
    const isSameTree = equalBytes(checkpoint.root, own.root);
    const text = isSameTree
      ? location.tlog_proof.replace(snapshot.checkpointNote, () => note)
      : location.tlog_proof;
    return (this.proof = { snapshot, note, text, tag: hashHex(nativeSha256, text) });
  }

  /** The cosigned checkpoint file; null if it is missing or unreadable. */
  private async published(): Promise<CosignedCheckpoint | null> {
    try {
      const bytes = await this.source.logFile(COSIGNED_PATH);
      if (bytes === null) return null;
      const note = fromUtf8(bytes);
      const { checkpoint } = openCheckpointNote(note, this.log, this.log[0].name, nativeVerify);
      return { note, checkpoint, cosignedAt: 1000 * latestStatedTime(note) };
    } catch {
      // After a failed read the server serves the snapshot's checkpoint; the poller reports an unreadable origin.
      return null;
    }
  }
}
