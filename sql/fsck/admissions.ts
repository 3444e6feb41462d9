import type { Db } from '../db/transaction.js';

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
  const rows = await sql<(AdmissionRow & { request: Buffer | null; requestHash: Buffer | null })[]>`
    select i.proof_id as "proofId", i.refused as "isRefused", "hasProof",
      num_nulls(request, request_hash, salt) > 0 as "lacksPayload",
      num_nonnulls(request, request_hash, salt) > 0 as "hasPayload",
      case when not "hasProof" then i.request end as request,
      case when not "hasProof" then i.request_hash end as "requestHash",
      (select true from svc.refusal r where r.proof_id = i.proof_id) is not null as "hasRefusal",
      (select true from svc.intake_pending q where q.proof_id = i.proof_id) is not null as "isPending",
      (select true from svc.erasure x where x.proof_id = i.proof_id) is not null as "isErased"
    from (select * from svc.intake where proof_id > ${after}::uuid order by proof_id limit ${limit}) i
    cross join lateral (
      select (select true from svc.proof p where p.proof_id = i.proof_id) is not null as "hasProof") found
    order by i.proof_id`;
  return rows.map(({ request, requestHash, ...row }) => ({
    ...row,
    unproved: request === null || requestHash === null ? null : { request, requestHash },
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
export function proofsFrom(sql: Db, after: string, limit: number): Promise<ProofPlace[]> {
  return sql<ProofPlace[]>`
    select p.proof_id as "proofId", p.leaf_index as "leafIndex",
      (select true from svc.log_entry e where e.leaf_index = p.leaf_index and e.kind = 1
        and e.proof_id = p.proof_id) is not null as "isInLog",
      (select true from svc.intake i where i.proof_id = p.proof_id) is not null as "isAccepted"
    from (select proof_id, leaf_index from svc.proof where proof_id > ${after}::uuid
      order by proof_id limit ${limit}) p
    order by p.proof_id`;
}

/** The number of admissions pending for longer than `ms` milliseconds, and the oldest acceptance. */
export async function waitingLongerThan(
  sql: Db,
  ms: number,
): Promise<{ count: number; oldest: Date | null }> {
  const [row] = await sql<[{ count: number; oldest: Date | null }]>`
    select count(*) as count, min(accepted_at) as oldest from svc.intake_pending
    where accepted_at < now() - ${`${ms} milliseconds`}::interval`;
  return row;
}
