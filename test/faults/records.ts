import type { ArtifactKind } from '#protocol/status';

/** Members of single admissions and batches. */
interface Sent {
  /** The sequence number among requests of this type. */
  n: number;
  /** Number of attempts, which alternate between the engines. */
  attempts: number;
  /** Whether any response acknowledged the request. */
  acknowledged: boolean;
}

/** An admission that is not part of a batch. */
export interface Single extends Sent {
  kind: 'single';
  path: string;
  body: string;
  /** The first receipt, which every later answer must repeat byte by byte. */
  receipt: string | null;
  /** The proof id in the receipt or in the 202 response. */
  proofId: string | null;
  /** Artifacts whose revocation was requested. */
  revoked: Set<ArtifactKind>;
  isErased: boolean;
  /**
   * Whether the passport of the proof expires at once. The certificate and the trust artifact expire with
   * the passport.
   */
  ends: boolean;
  /** Number of unacknowledged requests about this admission. */
  open: number;
  inPackage: boolean;
  /** Whether the request is an outcome or a close, to which no later request refers. */
  isReport: boolean;
}

export interface Batch extends Sent {
  kind: 'batch';
  body: string;
  items: number;
  batchId: string | null;
  /** Proof ids of the items, in order, once all items are committed. */
  proofIds: string[];
}

export type ClientRequest = Single | Batch;

/** The responses that a client would keep as evidence. */
export class Records {
  readonly requests: ClientRequest[] = [];
  /** Admitted requests in the order of their receipts. */
  readonly admitted: Single[] = [];
  /** Responses that contradict an earlier acknowledgement. */
  readonly broken: string[] = [];
  /** Rejections that no fault explains. */
  readonly wrong: string[] = [];

  get acknowledged(): ClientRequest[] {
    return this.requests.filter((one) => one.acknowledged);
  }

  get deduplicationKeys(): number {
    return this.requests.reduce((sum, one) => sum + (one.kind === 'single' ? 1 : one.items), 0);
  }

  /** Records a receipt, which must equal the first one byte by byte. */
  recordReceipt(one: Single, receipt: string, proofId: string, isAdmitted: boolean): void {
    if (one.receipt !== null && one.receipt !== receipt) {
      this.broken.push(`the receipt of ${proofId} has changed`);
    }
    this.recordProofId(one, proofId);
    if (one.receipt === null && isAdmitted && !one.isReport) this.admitted.push(one);
    one.receipt ??= receipt;
  }

  recordProofId(one: Single, proofId: string): void {
    one.acknowledged = true;
    if (one.proofId !== null && one.proofId !== proofId) {
      this.broken.push(`the proof id ${one.proofId} has changed to ${proofId}`);
    }
    one.proofId ??= proofId;
  }

  recordBatch(one: Batch, batchId: string): void {
    one.acknowledged = true;
    if (one.batchId !== null && one.batchId !== batchId) {
      this.broken.push(`the batch id ${one.batchId} has changed to ${batchId}`);
    }
    one.batchId ??= batchId;
  }
}
