import type { Db } from '../db/transaction.js';
import { fromUuid, toUuid } from '../db/columns.js';

/** The rows that show an admission's outcome. */
export interface AdmissionRow {
  proofId: string;
  /** From the intake row, which releases the deduplication key. */
  isRefused: boolean;
  hasProof: boolean;
  hasRefusal: boolean;
  isPending: boolean;
  /** Some of its payload is missing. */
  lacksPayload: boolean;
  /** Some of its payload is present. */
  hasPayload: boolean;
  isErased: boolean;
  /** The remaining payload of an admission without a proof: the log does not cover it. */
  unproved: { request: Buffer; requestHash: Buffer } | null;
}

/** Admissions after `after`, in order of their ids. */
export async function admissionsFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<AdmissionRow[]> {
  const rows = await sql<
    {
      proof_id: string;
      refused: boolean;
      proved: boolean;
      refusal: boolean;
      pending: boolean;
      lacks: boolean;
      has: boolean;
      erased: boolean;
      request: Buffer | null;
      request_hash: Buffer | null;
    }[]
  >`
    select i.proof_id::text, i.refused, proved, i.lacks, i.has,
      case when not proved then i.request end as request,
      case when not proved then i.request_hash end as request_hash,
      (select true from svc.refusal r where r.proof_id = i.proof_id) is not null as refusal,
      (select true from svc.intake_pending q where q.proof_id = i.proof_id) is not null as pending,
      (select true from svc.erasure x where x.proof_id = i.proof_id) is not null as erased
    from (select proof_id, refused, request, request_hash, num_nulls(request, request_hash, salt) > 0 as lacks,
        num_nonnulls(request, request_hash, salt) > 0 as has from svc.intake where proof_id > ${toUuid(after)}::uuid
      order by proof_id limit ${limit}) i
    cross join lateral (
      select (select true from svc.proof p where p.proof_id = i.proof_id) is not null as proved) found
    order by i.proof_id`;
  return rows.map((row) => ({
    proofId: fromUuid(row.proof_id),
    isRefused: row.refused,
    hasProof: row.proved,
    hasRefusal: row.refusal,
    isPending: row.pending,
    lacksPayload: row.lacks,
    hasPayload: row.has,
    isErased: row.erased,
    unproved:
      row.request === null || row.request_hash === null
        ? null
        : { request: row.request, requestHash: row.request_hash },
  }));
}

export interface ProofPlace {
  proofId: string;
  leafIndex: number;
  /** The log has the proof at the leaf that its row names. */
  isInLog: boolean;
  isAccepted: boolean;
}

/** Proofs after `after`, in order of their ids. */
export async function proofsFrom(sql: Db, after: string, limit: number): Promise<ProofPlace[]> {
  const rows = await sql<
    { proof_id: string; leaf_index: number; in_log: boolean; accepted: boolean }[]
  >`
    select p.proof_id::text, p.leaf_index,
      (select true from svc.log_entry e where e.leaf_index = p.leaf_index and e.kind = 1
        and e.proof_id = p.proof_id) is not null as in_log,
      (select true from svc.intake i where i.proof_id = p.proof_id) is not null as accepted
    from (select proof_id, leaf_index from svc.proof where proof_id > ${toUuid(after)}::uuid
      order by proof_id limit ${limit}) p
    order by p.proof_id`;
  return rows.map((row) => ({
    proofId: fromUuid(row.proof_id),
    leafIndex: Number(row.leaf_index),
    isInLog: row.in_log,
    isAccepted: row.accepted,
  }));
}

/** Pending rows without an intake row. */
export async function strayPending(sql: Db, limit: number): Promise<string[]> {
  const rows = await sql<{ proof_id: string }[]>`
    select proof_id::text from svc.intake_pending q
    where (select true from svc.intake i where i.proof_id = q.proof_id) is null
    order by proof_id limit ${limit}`;
  return rows.map((row) => fromUuid(row.proof_id));
}

/** The number of admissions pending for longer than `ms` milliseconds, and the oldest acceptance. */
export async function waitingLongerThan(
  sql: Db,
  ms: number,
): Promise<{ count: number; oldest: Date | null }> {
  const [row] = await sql<{ count: number; oldest: Date | null }[]>`
    select count(*)::integer as count, min(accepted_at) as oldest from svc.intake_pending
    where accepted_at < now() - ${`${ms} milliseconds`}::interval`;
  return { count: row?.count ?? 0, oldest: row?.oldest ?? null };
}

/** Deduplication keys with more than one admission, which the index forbids. */
export async function sharedIdentities(sql: Db, limit: number): Promise<string[][]> {
  const rows = await sql<{ proof_ids: string[] }[]>`
    select array_agg(proof_id::text order by proof_id) as proof_ids from svc.intake
    where not refused and request_hash is not null group by tenant_no, lane, request_hash having count(*) > 1 limit ${limit}`;
  return rows.map((row) => row.proof_ids.map(fromUuid));
}
