import type { ArtifactKind } from '#protocol/status';

/** What both kinds of requests have. */
interface Sent {
  /** Of those of its kind. */
  n: number;
  /** How often it was sent: the next time it goes to the other engine. */
  attempts: number;
  /** Whether there was an answer that acknowledges it, before the fault was healed or after. */
  acknowledged: boolean;
}

/** One identity that was asked for alone. */
export interface Single extends Sent {
  kind: 'single';
  path: string;
  body: string;
  /** The receipt, byte by byte, once one was given: it is the promise that is held against all else. */
  receipt: string | null;
  /** Of the receipt or of a 202. */
  proofId: string | null;
  /** What its owner asked to be revoked since. */
  revoked: Set<ArtifactKind>;
  /** Its payload was asked to be erased. */
  isErased: boolean;
  /** Its passport ends a moment after it was taken in, and what rests on that. */
  ends: boolean;
  /** What was asked about it and is not acknowledged yet, or is still to be asked. */
  open: number;
  inPackage: boolean;
}

export interface Batch extends Sent {
  kind: 'batch';
  body: string;
  items: number;
  batchId: string | null;
  /** Of its items, by place, once all are settled. */
  proofIds: string[];
}

export type Asked = Single | Batch;

/** What a client that trusts nobody remembers of what it was told. */
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
