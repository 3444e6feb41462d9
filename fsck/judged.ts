import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind, Decided } from '#protocol/status';

/** What the registry half found of a proof, for the half that looks at what is published of it. */
export interface LeafCheckResult {
  leafIndex: number;
  proofId: string;
  /** Whether it verifies, as found here; null when that cannot be told. */
  verifies: boolean | null;
  /** Nothing is wrong with it but that its key is compromised. */
  isVoided: boolean;
  /** What its bytes say; null when they are damaged. */
  said: (Decided & { environment: 'sandbox' | 'live'; keyId: string }) | null;
  /** When its artifacts stop asserting, by its AEP, in epoch milliseconds. */
  ends: readonly { kind: ArtifactKind; expiresAt: number }[];
  /** Every verdict that covers it, the one in force last. */
  verdicts: readonly VerdictInHistory[];
}

/** The proofs of a chunk, by leaf index. */
export type JudgedChunk = ReadonlyMap<number, LeafCheckResult>;
