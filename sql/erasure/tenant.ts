import { noTenant } from '../tenants/audit.js';
import type { Db, Transaction } from '../db/transaction.js';
import { eraseBatches, holdKeys } from './traces.js';
import { eraseReasons, inputHashOf } from './payloads.js';

export async function tenantNumber(sql: Db, tenantId: string): Promise<number> {
  const [row] = await sql<{ no: number }[]>`
    select tenant_no as no from svc.tenant where tenant_id = ${tenantId}`;
  if (row === undefined) throw noTenant(tenantId);
  return row.no;
}

/** A tenant's admissions with payload after `after`, in order of their ids. */
export async function unerasedFrom(
  sql: Db,
  tenantNo: number,
  after: string,
  limit: number,
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select proof_id as id from svc.intake
    where tenant_no = ${tenantNo} and request is not null and proof_id > ${after}::uuid
    order by proof_id limit ${limit}`;
  return rows.map(({ id }) => id);
}

/**
 * Erases what remains of a tenant after its admissions: revocation reasons added since, idempotency
 * keys without an admission, batch hashes and problems, and inputs that no AEP names.
 *
 * @returns the number of pending revocations of erased proofs; they keep their reasons until appended
 */
export async function eraseTenantTraces(tx: Transaction, tenantNo: number): Promise<number> {
  await holdKeys(tx);
  const revoked = await tx<{ id: string }[]>`
    select r.proof_id as id from svc.revocation_request r join svc.erasure using (proof_id)
    where r.tenant_no = ${tenantNo} and r.document is not null
    union -- administrators revoke without a request
    select e.proof_id from svc.log_entry e join svc.erasure using (proof_id)
      join svc.proof p using (proof_id)
    where e.kind = 2 and p.tenant_no = ${tenantNo}`;
  const ids = revoked.map(({ id }) => id);
  await eraseReasons(tx, ids);
  await eraseBatchesOf(tx, tenantNo);
  // Row-level security hides keys that are bound to kept admissions.
  await tx`delete from svc.idempotency_key where tenant_no = ${tenantNo}`;
  await eraseTenantInputs(tx, tenantNo);
  const [waiting] = await tx<[{ n: number }]>`
    select count(*) as n from svc.revocation_pending join svc.revocation_request r using (request_id)
    join svc.erasure using (proof_id) where r.tenant_no = ${tenantNo}`;
  return waiting.n;
}

/**
 * Erases hashes and problems of batches whose admissions are all erased. A batch without admissions
 * is erased when the tenant has an erasure record, or has no admissions at all.
 */
async function eraseBatchesOf(tx: Transaction, tenantNo: number): Promise<void> {
  const batches = await tx<{ id: string; hash: Buffer | null }[]>`
    select b.batch_id as id, b.items_hash as hash from svc.batch b
    cross join lateral (
      select bool_or(one.proof_id is not null) as admits, bool_or(one.proof_id is not null
          and (select true from svc.erasure e where e.proof_id = one.proof_id) is null) as keeps
      from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
      where p.batch_id = b.batch_id) items
    where b.tenant_no = ${tenantNo} and items.keeps is not true and (items.admits
      or exists (select from svc.erasure join svc.intake i using (proof_id)
        where i.tenant_no = ${tenantNo})
      or not exists (select from svc.intake i
        where i.tenant_no = ${tenantNo} and i.request is not null))`;
  const hashed = batches.flatMap(({ id, hash }) => (hash === null ? [] : [{ id, hash }]));
  await eraseBatches(tx, tenantNo, hashed);
  await tx`
    update svc.batch_part set problems = null
    where batch_id = any(${batches.map(({ id }) => id)}::uuid[]) and problems is not null`;
}

async function eraseTenantInputs(tx: Transaction, tenantNo: number): Promise<void> {
  const inputs = await tx<{ hash: string }[]>`
    select encode(input_hash, 'hex') as hash from svc.policy_input
    where convert_from(input, 'UTF8')::jsonb #>> '{tenant,tenant_id}' =
      (select tenant_id from svc.tenant where tenant_no = ${tenantNo})`;
  if (inputs.length === 0) return;
  await tx`select svc.hold_appends()`;
  const kept = await tx<{ aep: Buffer }[]>`
    select aep from svc.proof where tenant_no = ${tenantNo} and aep is not null`;
  const named = new Set(kept.map(({ aep }) => inputHashOf(aep)?.toString('hex')));
  // An unreadable AEP may name any of them.
  if (named.has(undefined)) return;
  const unnamed = inputs.filter(({ hash }) => !named.has(hash)).map(({ hash }) => hash);
  await tx`
    delete from svc.policy_input where input_hash in (
      select decode(hash, 'hex') from unnest(${unnamed}::text[]) as asked(hash))`;
}
