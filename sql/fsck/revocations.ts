import type { Decided } from '#protocol/status';
import type { Db } from '../db/transaction.js';
import { fromUuid, toUuid } from '../db/columns.js';

/** The proof that an entry names; null when it is unknown. */
export async function proofAbout(
  sql: Db,
  proofId: string,
): Promise<({ leafIndex: number } & Decided) | null> {
  const [row] = await sql<
    { leaf_index: number; effect: Decided['effect']; is_outcome: boolean }[]
  >`select leaf_index, effect, is_outcome from svc.proof
    where proof_id = ${toUuid(proofId)}::uuid`;
  if (row === undefined) return null;
  return { leafIndex: Number(row.leaf_index), effect: row.effect, isOutcome: row.is_outcome };
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
    select document, exists (select from svc.erasure where proof_id = ${toUuid(proofId)}::uuid) as erased
    from svc.revocation_reason where reason_hash = ${Buffer.from(reasonHash, 'hex')}`;
  return row?.document ?? (row?.erased === true ? 'erased' : null);
}

export interface AskedRevocation {
  requestId: string;
  proofId: string;
  artifactKind: string;
}

/** Requests after `after` that were not rejected and are done: the log must have their entries. */
export async function settledRequests(
  sql: Db,
  after: string,
  limit: number,
): Promise<AskedRevocation[]> {
  const rows = await sql<{ request_id: string; proof_id: string; artifact_kind: string }[]>`
    select request_id::text, proof_id::text, artifact_kind from svc.revocation_request r
    where request_id > ${toUuid(after)}::uuid and refused is null
      and (select true from svc.revocation_pending q where q.request_id = r.request_id) is null
    order by request_id limit ${limit}`;
  return rows.map((row) => ({
    requestId: fromUuid(row.request_id),
    proofId: fromUuid(row.proof_id),
    artifactKind: row.artifact_kind,
  }));
}

/** Reason documents after `after` (hex); each commits with its log entry. */
export async function reasonsFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<{ reasonHash: string; document: Buffer }[]> {
  const rows = await sql<{ reason_hash: Buffer; document: Buffer }[]>`
    select reason_hash, document from svc.revocation_reason
    where document is not null and reason_hash > ${Buffer.from(after, 'hex')} order by reason_hash limit ${limit}`;
  return rows.map((row) => ({
    reasonHash: row.reason_hash.toString('hex'),
    document: row.document,
  }));
}
