import { AdministrationError, noTenant } from './administration-error.js';
import type { Db, Transaction } from './db.js';
import { fromUuid, toUuid } from './ids.js';
import { unpackAep } from './packed-aep.js';

/** On whose word something is erased. */
export interface ErasureOrder {
  actor: string;
  /** Where the request to erase is kept, such as a case number: it stays for ever, so no name and no reason. */
  reasonRef: string;
}

/** Payload that was found and nulled, with what the rest of its traces are found by. */
export interface Erased {
  proofId: string;
  tenantNo: number;
  lane: number;
  /** Of an erasure in this transaction; false when it was erased before. */
  isNew: boolean;
  requestHash: Buffer | null;
  /** Of what it was decided on; null when it was refused, or its AEP cannot be read. */
  inputHash: Buffer | null;
}

interface Row {
  proof_id: string;
  tenant_no: number;
  lane: number;
  request_hash: Buffer | null;
  aep: Buffer | null;
  leaf_index: number | null;
  is_settled: boolean;
  is_recorded: boolean;
}

/**
 * Nulls the payload of settled admissions in this transaction, each with its record. The database
 * refuses the one without the other. What was erased before is erased again as far as something came
 * since, such as the reason of a revocation, and gets no second record.
 *
 * Those that are not settled are left as they are, and are not in what is returned.
 */
export async function erasePayloads(
  tx: Transaction,
  proofIds: readonly string[],
  order: ErasureOrder,
): Promise<Erased[]> {
  const ids = proofIds.map(toUuid);
  const rows = await tx<Row[]>`
    select i.proof_id::text, i.tenant_no, i.lane, i.request_hash, p.aep, p.leaf_index,
      (p.proof_id is not null or i.refused)
        and not exists (select from svc.intake_pending q where q.proof_id = i.proof_id)
        and not exists (select from svc.revocation_request r join svc.revocation_pending using (request_id)
          where r.proof_id = i.proof_id) as is_settled,
      exists (select from svc.erasure e where e.proof_id = i.proof_id) as is_recorded
    from svc.intake i left join svc.proof p using (proof_id)
    where i.proof_id = any(${ids}::uuid[]) order by i.proof_id for update of i`;
  const settled = rows.filter((row) => row.is_settled);
  const fresh = settled.filter((row) => !row.is_recorded);
  if (fresh.length > 0) {
    const records = fresh.map((row) => ({
      proof_id: row.proof_id,
      leaf_index: row.leaf_index,
      actor: order.actor,
      reason_ref: order.reasonRef,
    }));
    await tx`insert into svc.erasure ${tx(records)}`;
    const own = fresh.map((row) => row.proof_id);
    await tx`
      update svc.intake set request = null, request_hash = null, salt = null
      where proof_id = any(${own}::uuid[])`;
    await tx`
      update svc.proof set aep = null, signature = null, action = null, intent_id = null
      where proof_id = any(${own}::uuid[])`;
    await tx`update svc.refusal set detail = '' where proof_id = any(${own}::uuid[])`;
  }
  await eraseReasons(
    tx,
    settled.map((row) => row.proof_id),
  );
  return settled.map((row) => ({
    proofId: fromUuid(row.proof_id),
    tenantNo: row.tenant_no,
    lane: row.lane,
    isNew: !row.is_recorded,
    requestHash: row.request_hash,
    inputHash: inputHashOf(row.aep),
  }));
}

/**
 * Why its artifacts were revoked. The log keeps the salted hash of it. What waits keeps its reason, also
 * when it was asked for since this began: a worker holds it against its hash, and appends nothing without.
 */
async function eraseReasons(tx: Transaction, ids: readonly string[]): Promise<void> {
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

function inputHashOf(aep: Buffer | null): Buffer | null {
  if (aep === null) return null;
  try {
    const { policy } = JSON.parse(unpackAep(aep).toString('utf8')) as {
      policy?: { input_hash?: string };
    };
    const hash = Buffer.from(policy?.input_hash ?? '', 'hex');
    return hash.length === 32 ? hash : null;
  } catch {
    return null; // damaged: what it was decided on stays, and is told apart by nothing
  }
}

/**
 * Keeps everybody from binding idempotency keys until the transaction ends, and waits for who was about
 * to: such a key may be of what is erased. Before any row is locked, so that nobody waits in a circle.
 */
export async function holdKeys(tx: Transaction): Promise<void> {
  await tx`lock table svc.idempotency_key in share row exclusive mode`;
}

/** Keys, and hashes of bodies without a salt, that an erased admission came with. */
export async function eraseTraces(tx: Transaction, erased: readonly Erased[]): Promise<void> {
  for (const { proofId, tenantNo, lane, requestHash, inputHash } of erased) {
    if (requestHash !== null) {
      await tx`
        delete from svc.idempotency_key
        where tenant_no = ${tenantNo} and lane = ${lane} and request_hash = ${requestHash}`;
    }
    const batches = await tx<{ batch_id: string }[]>`
      select distinct b.batch_id::text from svc.batch b join svc.batch_part p using (batch_id)
      where b.tenant_no = ${tenantNo} and b.items_hash is not null
        and ${toUuid(proofId)}::uuid = any(p.proof_ids)`;
    await eraseBatches(
      tx,
      batches.map((row) => row.batch_id),
    );
    if (inputHash !== null) await eraseInput(tx, tenantNo, inputHash);
  }
}

async function eraseBatches(tx: Transaction, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await tx`
    delete from svc.idempotency_key k using svc.batch b
    where b.batch_id = any(${[...ids]}::uuid[]) and k.tenant_no = b.tenant_no and k.lane = 3
      and k.request_hash = b.items_hash`;
  await tx`
    update svc.batch set items_hash = null
    where batch_id = any(${[...ids]}::uuid[]) and items_hash is not null`;
}

/** An AEP has the hash of its input: raw where it is packed, as text where it is not. */
const namesInput = (tx: Db, inputHash: Buffer) => tx`
  (position(${inputHash}::bytea in aep) > 0
    or position(convert_to(${inputHash.toString('hex')}, 'UTF8') in aep) > 0)`;

/**
 * What it was decided on, unless another proof that is kept was decided on the same: inputs name
 * their tenant, so it is one of the tenant's. What is appended meanwhile is looked at last, while
 * nothing can be.
 */
async function eraseInput(tx: Transaction, tenantNo: number, inputHash: Buffer): Promise<void> {
  const [before] = await tx<{ is_kept: boolean; last: number | null }[]>`
    select exists (select from svc.proof where tenant_no = ${tenantNo} and aep is not null
        and ${namesInput(tx, inputHash)}) as is_kept,
      (select max(leaf_index) from svc.proof where tenant_no = ${tenantNo}) as last`;
  if (before?.is_kept !== false) return;
  await tx`select svc.hold_appends()`;
  const [since] = await tx<{ is_kept: boolean }[]>`
    select exists (select from svc.proof where tenant_no = ${tenantNo} and aep is not null
      and leaf_index > ${before.last ?? -1} and ${namesInput(tx, inputHash)}) as is_kept`;
  if (since?.is_kept !== false) return;
  await tx`delete from svc.policy_input where input_hash = ${inputHash}`;
}

/** The number of a tenant, for whoever goes through all that it has. */
export async function tenantNumber(sql: Db, tenantId: string): Promise<number> {
  const [row] = await sql<{ tenant_no: number }[]>`
    select tenant_no from svc.tenant where tenant_id = ${tenantId}`;
  if (row === undefined) throw noTenant(tenantId);
  return row.tenant_no;
}

/** Admissions of a tenant that have payload, behind `after` in the order of their ids. */
export async function unerasedFrom(
  sql: Db,
  tenantNo: number,
  after: string,
  limit: number,
): Promise<string[]> {
  const rows = await sql<{ proof_id: string }[]>`
    select proof_id::text from svc.intake
    where tenant_no = ${tenantNo} and request is not null and proof_id > ${toUuid(after)}::uuid
    order by proof_id limit ${limit}`;
  return rows.map((row) => fromUuid(row.proof_id));
}

/**
 * What is left of a tenant whose admissions were erased: reasons that came since, keys without an
 * admission, what batches hash and what was wrong with their items, and inputs that no AEP names.
 *
 * @returns how many revocations of what was erased wait to be appended, and keep their reasons until then
 */
export async function eraseTenantTraces(tx: Transaction, tenantNo: number): Promise<number> {
  await holdKeys(tx);
  const revoked = await tx<{ proof_id: string }[]>`
    select r.proof_id::text from svc.revocation_request r join svc.erasure using (proof_id)
    where r.tenant_no = ${tenantNo} and r.document is not null
    union -- what an administrator revoked, nobody had requested
    select e.proof_id::text from svc.log_entry e join svc.erasure using (proof_id)
      join svc.proof p using (proof_id)
    where e.kind = 2 and p.tenant_no = ${tenantNo}`;
  await eraseReasons(
    tx,
    revoked.map((row) => row.proof_id),
  );
  const batches = await tx<{ batch_id: string }[]>`
    select b.batch_id::text from svc.batch b where b.tenant_no = ${tenantNo}
      and not exists (select from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
        where p.batch_id = b.batch_id and one.proof_id is not null
          and (select true from svc.erasure e where e.proof_id = one.proof_id) is null)`;
  const ids = batches.map((row) => row.batch_id);
  await eraseBatches(tx, ids);
  await tx`
    update svc.batch_part set problems = null
    where batch_id = any(${ids}::uuid[]) and problems is not null`;
  await tx`
    delete from svc.idempotency_key k where k.tenant_no = ${tenantNo} and case k.lane
      when 3 then not exists (select from svc.batch b
        where b.tenant_no = k.tenant_no and b.items_hash = k.request_hash)
      else not exists (select from svc.intake i where i.tenant_no = k.tenant_no and i.lane = k.lane
        and i.request_hash = k.request_hash and not i.refused) end`;
  await eraseTenantInputs(tx, tenantNo);
  const [waiting] = await tx<{ n: number }[]>`
    select count(*)::int as n from svc.revocation_pending join svc.revocation_request r using (request_id)
    join svc.erasure using (proof_id) where r.tenant_no = ${tenantNo}`;
  return waiting?.n ?? 0;
}

async function eraseTenantInputs(tx: Transaction, tenantNo: number): Promise<void> {
  const inputs = await tx<{ input_hash: Buffer }[]>`
    select input_hash from svc.policy_input
    where convert_from(input, 'UTF8')::jsonb #>> '{tenant,tenant_id}' =
      (select tenant_id from svc.tenant where tenant_no = ${tenantNo})`;
  if (inputs.length === 0) return;
  await tx`select svc.hold_appends()`;
  const kept = await tx<{ aep: Buffer }[]>`
    select aep from svc.proof where tenant_no = ${tenantNo} and aep is not null`;
  const named = new Set(kept.map(({ aep }) => inputHashOf(aep)?.toString('hex')));
  const unnamed = inputs.filter(({ input_hash: hash }) => !named.has(hash.toString('hex')));
  // A damaged AEP may name any of them.
  if (named.has(undefined) || unnamed.length === 0) return;
  await tx`
    delete from svc.policy_input where input_hash in (
      select decode(hash, 'hex')
      from unnest(${unnamed.map((row) => row.input_hash.toString('hex'))}::text[]) as asked(hash))`;
}

/** When an admission was erased, and by whose word; null when it was not. */
export async function erasureOf(
  sql: Db,
  proofId: string,
): Promise<{ erasedAt: Date; actor: string; reasonRef: string } | null> {
  const [row] = await sql<{ erased_at: Date; actor: string; reason_ref: string }[]>`
    select erased_at, actor, reason_ref from svc.erasure where proof_id = ${toUuid(proofId)}::uuid`;
  return row === undefined
    ? null
    : { erasedAt: row.erased_at, actor: row.actor, reasonRef: row.reason_ref };
}

/** Why nothing was erased of an admission that is not settled, or not there. */
export async function requireErasable(sql: Db, proofId: string): Promise<void> {
  const [row] = await sql`select from svc.intake where proof_id = ${toUuid(proofId)}::uuid`;
  if (row === undefined) throw new AdministrationError(`there is no admission ${proofId}`);
  throw new AdministrationError(
    `admission ${proofId}, or a revocation of it, is not settled yet: erase it once it is`,
  );
}
