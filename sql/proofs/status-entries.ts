import { parseEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import type { Db } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';
import { fromUuid, toUuid } from '../db/columns.js';

/** What the log has about a proof cannot be told any more: it may have been a revocation. */
export class DamagedEntryError extends Error {
  override readonly name = 'DamagedEntryError';
}

export interface StatusOf {
  proofId: string;
  leafIndex: number;
  /** Null when the row is not the entry that the log has there: what it was is lost. */
  entry: StatusEntry | null;
}

/**
 * The status rows that are filed under the proofs, in log order, each with its entry: null unless it
 * is one about this proof, and the very one that was hashed into the tree. A revocation that
 * somebody rewrote to be about something else must not pass for none.
 */
export function statusesOf(db: Db, proofIds: readonly string[]): Promise<StatusOf[]> {
  return mapDbErrors(async () => {
    const rows = await db<
      { leaf_index: string; proof_id: string; body: Buffer; in_tree: boolean | null }[]
    >`
      select e.leaf_index, e.proof_id::text, e.body, sha256('\\x00'::bytea || e.body)
        = substring(t.hashes from (e.leaf_index % 256)::int * 32 + 1 for 32) as in_tree
      from svc.log_entry e
      left join svc.tile t on t.level = 0 and t.tile_index = e.leaf_index / 256
      where e.kind = 2 and e.proof_id = any(${proofIds.map(toUuid)}::uuid[])
      order by e.leaf_index`;
    return rows.map((row) => {
      const proofId = fromUuid(row.proof_id);
      const entry = row.in_tree === true ? entryAbout(proofId, row.body) : null;
      return { proofId, leafIndex: Number(row.leaf_index), entry };
    });
  });
}

function entryAbout(proofId: string, body: Buffer): StatusEntry | null {
  try {
    const entry = parseEntry(body);
    return entry.type === 'status' && entry.proof_id === proofId ? entry : null;
  } catch (error) {
    if (error instanceof ProtocolError) return null;
    throw error;
  }
}
