import type { ArtifactKind } from '#protocol/status';

/** Members of both kinds of requests. */
interface Sent {
  /** Number within its kind. */
  n: number;
  /** How often it was sent: the next time it goes to the other engine. */
  attempts: number;
  /** Whether there was an answer that acknowledges it, before the fault was healed or after. */
  acknowledged: boolean;
}

/** One deduplication key that was sent in a single admission. */
export interface Single extends Sent {
  kind: 'single';
  path: string;
  body: string;
  /** The bytes of the first receipt, which every later answer must repeat. */
  receipt: string | null;
  /** From the receipt or the 202. */
  proofId: string | null;
  /** Artifacts whose revocation was requested. */
  revoked: Set<ArtifactKind>;
  /** Whether its erasure was requested. */
  isErased: boolean;
  /** Its passport ends a moment after it was taken in, and what rests on that. */
  ends: boolean;
  /** Requests about it that are not acknowledged or not sent yet. */
  open: number;
  inPackage: boolean;
}

export interface Batch extends Sent {
  kind: 'batch';
  body: string;
  items: number;
  batchId: string | null;
  /** Proof ids of its items, by position, once all are committed. */
  proofIds: string[];
}

export type Asked = Single | Batch;

/** What a distrustful client remembers of its answers. */
export class Memory {
  readonly asked: Asked[] = [];
  /** Those that were admitted, in the order of their receipts. */
  readonly admitted: Single[] = [];
  /** Answers that contradict what was acknowledged before. */
  readonly broken: string[] = [];
  /** Answers that no fault explains: a refusal of what is in order. */
  readonly wrong: string[] = [];

  get acknowledged(): Asked[] {
    return this.asked.filter((one) => one.acknowledged);
  }

  get identities(): number {
    return this.asked.reduce((sum, one) => sum + (one.kind === 'single' ? 1 : one.items), 0);
  }

  /** Takes a receipt in; a second one must be the first, byte by byte. */
  takeReceipt(one: Single, receipt: string, proofId: string, isAdmitted: boolean): void {
    if (one.receipt !== null && one.receipt !== receipt) {
      this.broken.push(`the receipt of ${proofId} is another one now`);
    }
    this.takeProofId(one, proofId);
    if (one.receipt === null && isAdmitted) this.admitted.push(one);
    one.receipt ??= receipt;
  }

  takeProofId(one: Single, proofId: string): void {
    one.acknowledged = true;
    if (one.proofId !== null && one.proofId !== proofId) {
      this.broken.push(`what was promised as ${one.proofId} is ${proofId} now`);
    }
    one.proofId ??= proofId;
  }

  takeBatch(one: Batch, batchId: string): void {
    one.acknowledged = true;
    if (one.batchId !== null && one.batchId !== batchId) {
      this.broken.push(`what was promised as batch ${one.batchId} is ${batchId} now`);
    }
    one.batchId ??= batchId;
  }
}
