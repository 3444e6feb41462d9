import type { Decided } from '#protocol/status';
import type { Db } from '../db/transaction.js';

/** The proof that an entry names; null when it is unknown. */
export async function proofAbout(
  sql: Db,
  proofId: string,
): Promise<({ leafIndex: number } & Decided) | null> {
  const [row] = await sql<({ leafIndex: number } & Decided)[]>`
    select leaf_index as "leafIndex", effect, is_outcome as "isOutcome" from svc.proof
    where proof_id = ${proofId}::uuid`;
  return row ?? null;
}

/**
 * A reason document; null when it is missing, `erased` after an erasure of the proof.
 *
 * @param reasonHash hex
 */
export async function reasonDocument(
  sql: Db,
  reasonHash: string,
  proofId: string,
): Promise<Buffer | 'erased' | null> {
  const [row] = await sql<{ document: Buffer | null; erased: boolean }[]>`
    select document, exists (select from svc.erasure where proof_id = ${proofId}::uuid) as erased
    from svc.revocation_reason where reason_hash = ${Buffer.from(reasonHash, 'hex')}`;
  return row?.document ?? (row?.erased === true ? 'erased' : null);
}

export interface AskedRevocation {
  requestId: string;
  proofId: string;
  artifactKind: string;
}

/** Requests after `after` that were not rejected and are done: the log must have their entries. */
export function settledRequests(sql: Db, after: string, limit: number): Promise<AskedRevocation[]> {
  return sql<AskedRevocation[]>`
    select request_id as "requestId", proof_id as "proofId", artifact_kind as "artifactKind"
    from svc.revocation_request r
    where request_id > ${after}::uuid and refused is null
      and (select true from svc.revocation_pending q where q.request_id = r.request_id) is null
    order by request_id limit ${limit}`;
}

/** Reason documents after `after` (hex); each commits with its log entry. */
export function reasonsFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<{ reasonHash: string; document: Buffer }[]> {
  return sql<{ reasonHash: string; document: Buffer }[]>`
    select encode(reason_hash, 'hex') as "reasonHash", document from svc.revocation_reason
    where document is not null and reason_hash > ${Buffer.from(after, 'hex')}
    order by reason_hash limit ${limit}`;
}
