import { Problem } from '../http/problem.js';

export interface BatchSlotsOptions {
  /** Batches that are read and made durable at a time: each may be the largest there is, in memory. */
  most: number;
  /** Of one tenant, so that one that sends slowly leaves room for the others. */
  mostOfOne: number;
}

/** Takes a slot for a batch of the tenant, and returns what gives it back; 503 when none is free. */
export type BatchSlots = (tenantNo: number) => () => void;

export function createBatchSlots({ most, mostOfOne }: BatchSlotsOptions): BatchSlots {
  const taken = new Map<number, number>();
  let all = 0;
  return (tenantNo) => {
    const own = taken.get(tenantNo) ?? 0;
    if (all >= most || own >= mostOfOne) {
      throw new Problem(
        'too_many_batches',
        'Other batches are being taken in. Nothing was accepted; send it again later.',
        { headers: { 'Retry-After': '1' } },
      );
    }
    all += 1;
    taken.set(tenantNo, own + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      all -= 1;
      const left = (taken.get(tenantNo) ?? 1) - 1;
      if (left === 0) taken.delete(tenantNo);
      else taken.set(tenantNo, left);
    };
  };
}
