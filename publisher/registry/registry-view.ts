import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind, Effect, Outcome } from '#protocol/status';

/** Public data of a proof leaf: commitments, never a payload. */
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

/** A leaf with its canonical bytes: a status or key entry. */
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
  /** Whether the verdict covers only this leaf; its history may then have more events. */
  own: boolean;
}

/** A verdict on a single leaf. */
export interface VerdictChange {
  verdictId: number;
  leafIndex: number;
  /** Leaves of the log that the verifier saw. */
  treeSize: number;
  failedChecks: readonly string[];
  /** The key that signed the proof; null for a status or key entry. */
  keyId: string | null;
}

/** What a share token shows. */
export type ShareTarget =
  { artifactKind: ArtifactKind; proofId: string } | { artifactKind: 'package'; packageId: string };

/** A token (by its hash, in hex) was created, was revoked or expired; or a package was created. */
export type ShareChange = { changeNo: number } & ({ tokenHash: string } | { packageId: string });

/** A package row of the registry. */
export interface PackageRow {
  packageId: string;
  /** In the package's order. */
  proofIds: string[];
  /** Hash of the ordered proof ids, in hex, stored when the package was created. */
  membersHash: string;
}

/** The publisher's queries. */
export interface RegistryView {
  /** The verified prefix, with the root that the verifier computed. */
  verifiedPrefix(): Promise<{ treeSize: number; root: Uint8Array; verdictId: number } | null>;
  /** The largest signed checkpoint. */
  latestCheckpoint(): Promise<{ treeSize: number; root: Uint8Array; note: string } | null>;
  /** Compare-and-swap: false when `previous` is no longer the latest size. */
  insertCheckpoint(checkpoint: {
    treeSize: number;
    root: Uint8Array;
    note: string;
    previous: number;
  }): Promise<boolean>;
  /** Whether the log of this origin is retired. */
  hasEnded(origin: string): Promise<boolean>;
  tile(level: number, index: number): Promise<Uint8Array | null>;
  /** The appended leaf hash at an index, 32 bytes; null without a leaf. */
  leafHash(leafIndex: number): Promise<Uint8Array | null>;
  /** The leaves with indexes in [from, to), in order. */
  leaves(from: number, to: number): Promise<Leaf[]>;
  /** Columns of the proofs at the given indexes. */
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
  /** The effective verdict on each leaf of [from, to). */
  verdictsForRange(from: number, to: number): Promise<Map<number, LeafVerdict>>;
  /** Every verdict on each of the leaves, oldest first; the last one is effective. */
  verdictHistories(leafIndexes: number[]): Promise<Map<number, VerdictInHistory[]>>;
  /** Verdicts on single leaves after `verdictId`, in order. */
  verdictChangesSince(verdictId: number, limit: number): Promise<VerdictChange[]>;
  /** The last verdict id; 0 without any. */
  lastVerdictId(): Promise<number>;
  /** Start time of the last completed expiry scan; null: never. */
  expiryScanDoneAt(): Promise<number | null>;
  /** Committed changes after `changeNo`, in order and without gaps. */
  shareChangesSince(changeNo: number, limit: number): Promise<ShareChange[]>;
  /** What each token shows now, by its hash in hex; null when revoked or expired. */
  sharesNow(tokenHashes: string[]): Promise<Map<string, ShareTarget | null>>;
  packages(packageIds: string[]): Promise<PackageRow[]>;
  /** The packages that contain any of the proofs. */
  packagesWith(proofIds: string[]): Promise<string[]>;
}
