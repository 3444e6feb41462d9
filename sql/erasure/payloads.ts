import { AdministrationError } from '../tenants/audit.js';
import type { Db, Transaction } from '../db/transaction.js';
import { unpackAep } from '../proofs/packed-aep.js';

export interface ErasureOrder {
  actor: string;
  /** A reference to the request, such as a case number. It is kept forever: no names, no reasons. */
  reasonRef: string;
}

/** An erased payload, with the keys for finding its other traces. */
export interface Erased {
  proofId: string;
  tenantNo: number;
  lane: number;
  /** Erased by this transaction; false when it was erased before. */
  isNew: boolean;
  requestHash: Buffer | null;
  /** The hash of the policy input; null when the admission was rejected or its AEP is unreadable. */
  inputHash: Buffer | null;
}

/**
 * Nulls the payload of admissions with an outcome, each with an erasure record; the database rejects
 * one without the other. A repeat erases what was added since, such as a revocation reason, without
 * a second record.
 *
 * Skips pending admissions: they are absent from the result.
 */
export async function erasePayloads(
  tx: Transaction,
  proofIds: readonly string[],
  order: ErasureOrder,
): Promise<Erased[]> {
  type Row = Omit<Erased, 'inputHash'> & {
    aep: Buffer | null;
    leafIndex: number | null;
    isSettled: boolean;
  };
  const rows = await tx<Row[]>`
    select i.proof_id as "proofId", i.tenant_no as "tenantNo", i.lane, i.request_hash as "requestHash",
      p.aep, p.leaf_index as "leafIndex", (p.proof_id is not null or i.refused)
        and not exists (select from svc.intake_pending q where q.proof_id = i.proof_id)
        and not exists (select from svc.revocation_request r join svc.revocation_pending using (request_id)
          where r.proof_id = i.proof_id) as "isSettled",
      not exists (select from svc.erasure e where e.proof_id = i.proof_id) as "isNew"
    from svc.intake i left join svc.proof p using (proof_id)
    where i.proof_id = any(${[...proofIds]}::uuid[]) order by i.proof_id for update of i`;
  const settled = rows.filter(({ isSettled }) => isSettled);
  const fresh = settled.filter(({ isNew }) => isNew);
  if (fresh.length > 0) {
    const ids = fresh.map(({ proofId }) => proofId);
    await tx`
      insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
      select proof_id, leaf_index, ${order.actor}, ${order.reasonRef}
      from unnest(${ids}::uuid[], ${fresh.map(({ leafIndex }) => leafIndex)}::bigint[])
        as fresh(proof_id, leaf_index)`;
    await tx`
      update svc.intake set request = null, request_hash = null, salt = null
      where proof_id = any(${ids}::uuid[])`;
    await tx`
      update svc.proof set aep = null, signature = null, action = null, intent_id = null
      where proof_id = any(${ids}::uuid[])`;
    await tx`update svc.refusal set detail = '' where proof_id = any(${ids}::uuid[])`;
  }
  const ids = settled.map(({ proofId }) => proofId);
  await eraseReasons(tx, ids);
  return settled.map(({ aep, ...row }) => ({ ...row, inputHash: inputHashOf(aep) }));
}

/**
 * Erases the revocation reasons; the log keeps their salted hashes. A pending revocation keeps its
 * reason, because a worker checks the reason against the hash before it appends.
 */
export async function eraseReasons(tx: Transaction, ids: readonly string[]): Promise<void> {
  await tx`
    update svc.revocation_request r set document = null
    where document is not null and proof_id = any(${[...ids]}::uuid[]) and not exists (
      select from svc.revocation_pending q where q.request_id = r.request_id)`;
  await tx`
    update svc.revocation_reason set document = null
    where document is not null and reason_hash in (
      select decode(convert_from(body, 'UTF8')::jsonb ->> 'reason_hash', 'hex')
      from svc.log_entry where kind = 2 and proof_id = any(${[...ids]}::uuid[]))`;
}

/** The input hash in an AEP; null when the AEP is absent or unreadable. */
export function inputHashOf(aep: Buffer | null): Buffer | null {
  if (aep === null) return null;
  try {
    const { policy } = JSON.parse(unpackAep(aep).toString('utf8')) as {
      policy?: { input_hash?: string };
    };
    const hash = Buffer.from(policy?.input_hash ?? '', 'hex');
    return hash.length === 32 ? hash : null;
  } catch {
    return null; // Unreadable: the input cannot be identified, so it is kept.
  }
}

export async function erasureOf(
  sql: Db,
  proofId: string,
): Promise<(ErasureOrder & { erasedAt: Date }) | null> {
  const [row] = await sql<(ErasureOrder & { erasedAt: Date })[]>`
    select erased_at as "erasedAt", actor, reason_ref as "reasonRef"
    from svc.erasure where proof_id = ${proofId}::uuid`;
  return row ?? null;
}

/** Throws the reason why an admission cannot be erased: it is unknown or pending. */
export async function requireErasable(sql: Db, proofId: string): Promise<void> {
  const [row] = await sql`select from svc.intake where proof_id = ${proofId}::uuid`;
  if (row === undefined) throw new AdministrationError(`unknown admission ${proofId}`);
  throw new AdministrationError(
    `admission ${proofId}, or a revocation of it, is still pending: erase it when it has an outcome`,
  );
}
