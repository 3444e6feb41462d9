import { parseEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import type { Db } from '../db/transaction.js';

/** A status row of the proof differs from its log entry: it may have been a revocation. */
export class DamagedEntryError extends Error {
  override readonly name = 'DamagedEntryError';
}

export interface StatusOf {
  proofId: string;
  leafIndex: number;
  /** Null when the row differs from its log entry, so that its content is unknown. */
  entry: StatusEntry | null;
}

/**
 * The status rows of the proofs, in log order, each with its entry. The entry is null unless it names
 * this proof and hashes to its leaf in the tree: a manipulated row must not hide a revocation.
 */
export async function statusesOf(db: Db, proofIds: readonly string[]): Promise<StatusOf[]> {
  const rows = await db<(Omit<StatusOf, 'entry'> & { body: Buffer; inTree: boolean | null })[]>`
    select e.leaf_index as "leafIndex", e.proof_id as "proofId", e.body,
      sha256('\\x00'::bytea || e.body)
        = substring(t.hashes from (e.leaf_index % 256)::int * 32 + 1 for 32) as "inTree"
    from svc.log_entry e
    left join svc.tile t on t.level = 0 and t.tile_index = e.leaf_index / 256
    where e.kind = 2 and e.proof_id = any(${[...proofIds]}::uuid[])
    order by e.leaf_index`;
  return rows.map(({ proofId, leafIndex, body, inTree }) => ({
    proofId,
    leafIndex,
    entry: inTree === true ? entryAbout(proofId, body) : null,
  }));
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
