import { erasePayloads, type Erased } from '#sql/erasure/payloads';
import { eraseTraces, holdKeys } from '#sql/erasure/traces';
import { transaction } from '#sql/db/transaction';
import type { TestDatabase } from './database.js';

export const ERASURE_ORDER = { actor: 'ada', reasonRef: 'CASE-1' };

/** As `admin erase` does it, under the role that it is for. */
export function eraseProof(db: TestDatabase, proofId: string): Promise<Erased[]> {
  return transaction(db.as('svc_erase'), async (tx) => {
    await holdKeys(tx);
    const erased = await erasePayloads(tx, [proofId], ERASURE_ORDER);
    await eraseTraces(tx, erased);
    return erased;
  });
}
