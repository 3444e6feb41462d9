import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind, Effect, Outcome } from '#protocol/status';

/** A leaf that is a proof, as far as the public may know it: commitments, never a payload. */
export interface ProofLeaf {
  kind: 'proof';
  leafIndex: number;
  proofId: string;
  /** Hex. */
  aepHash: string;
  proofRecordHash: string;
  /** Epoch milliseconds. */
  acceptedAt: number;
  effect: Effect;
  isOutcome: boolean;
  environment: 'sandbox' | 'live';
  keyId: string;
}

/** A leaf that carries its own canonical bytes: a revocation or a key's change. */
export interface OtherLeaf {
  kind: 'other';
  leafIndex: number;
  bytes: Uint8Array;
}

export type Leaf = ProofLeaf | OtherLeaf;

export interface LeafVerdict {
  outcome: Outcome;
  expired: readonly ArtifactKind[];
  /** Epoch milliseconds. */
  verifiedAt: number;
  /** Of a row about this leaf alone: then there may be more to tell than that it was verified. */
  own: boolean;
}

/** A verdict on a single leaf. */
export interface VerdictChange {
  verdictId: number;
  leafIndex: number;
  /** Leaves of the log that the verifier saw. */
  treeSize: number;
  failedChecks: readonly string[];
  /** The key that signed the proof; null when the leaf is no proof. */
  keyId: string | null;
}

/** What a share token was made to show. */
export type ShareTarget =
  { artifactKind: ArtifactKind; proofId: string } | { artifactKind: 'package'; packageId: string };

/** A token (by its hash, in hex) was made, revoked or is over; or a package was made. */
export type ShareChange = { changeNo: number } & ({ tokenHash: string } | { packageId: string });

/** A package as the registry has it. */
export interface PackageRow {
  packageId: string;
  /** In the package's order. */
  proofIds: string[];
  /** Hex; of the proof ids in their order, as it was stored when the package was made. */
  membersHash: string;
}

/** All that the publisher asks of the registry. */
export interface RegistryView {
  /** The prefix of the log that has verdicts, with the root that the verifier computed over it. */
  verifiedPrefix(): Promise<{ treeSize: number; root: Uint8Array; verdictId: number } | null>;
  /** The largest checkpoint that was ever signed. */
  latestCheckpoint(): Promise<{ treeSize: number; root: Uint8Array; note: string } | null>;
  /** Compare-and-swap: false when `previous` is not the latest size any more. */
  insertCheckpoint(checkpoint: {
    treeSize: number;
    root: Uint8Array;
    note: string;
    previous: number;
  }): Promise<boolean>;
  /** Whether a log of this origin was ended: then nothing is signed for it again. */
  hasEnded(origin: string): Promise<boolean>;
  tile(level: number, index: number): Promise<Uint8Array | null>;
  /** The hash that was appended at an index, 32 bytes; null when there is none. */
  leafHash(leafIndex: number): Promise<Uint8Array | null>;
  /** The leaves with indexes in [from, to), in order. */
  leaves(from: number, to: number): Promise<Leaf[]>;
  /** The columns that stand beside the entries of the proofs at the given indexes. */
  proofsAt(
    leafIndexes: number[],
  ): Promise<Pick<ProofLeaf, 'leafIndex' | 'effect' | 'isOutcome' | 'environment' | 'keyId'>[]>;
  /** Bodies of the status entries with indexes in [from, to). */
  statusEntries(from: number, to: number): Promise<{ leafIndex: number; body: Uint8Array }[]>;
  /** Bodies of the status entries about the proofs, with indexes below `size`. */
  statusEntriesOf(
    proofIds: string[],
    size: number,
  ): Promise<{ leafIndex: number; body: Uint8Array }[]>;
  /** Bodies of the key entries, in order. */
  keyEntries(): Promise<{ leafIndex: number; body: Uint8Array }[]>;
  /** The verdict in force on each leaf of [from, to). */
  verdictsForRange(from: number, to: number): Promise<Map<number, LeafVerdict>>;
  /** Every verdict that covers each of the leaves, oldest first: the last one is in force. */
  verdictHistories(leafIndexes: number[]): Promise<Map<number, VerdictInHistory[]>>;
  /** Verdicts on single leaves after `verdictId`, in order. */
  verdictChangesSince(verdictId: number, limit: number): Promise<VerdictChange[]>;
  /** The number of the last verdict that there is, of whatever leaves; 0 without any. */
  lastVerdictId(): Promise<number>;
  /** When the verifier last began a look at all that may be over that it finished; null: never. */
  expiryScanDoneAt(): Promise<number | null>;
  /** Changes with greater numbers, in order: those that are committed, with none missing before them. */
  shareChangesSince(changeNo: number, limit: number): Promise<ShareChange[]>;
  /** What each token shows now, by its hash in hex: null when it is revoked or over. */
  sharesNow(tokenHashes: string[]): Promise<Map<string, ShareTarget | null>>;
  packages(packageIds: string[]): Promise<PackageRow[]>;
  /** The packages that have one of the proofs in them. */
  packagesWith(proofIds: string[]): Promise<string[]>;
}
