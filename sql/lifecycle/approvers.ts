import { approverActivationOf, isActiveApprover } from '#protocol/approvals';
import { fromHex } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import { canonicalBytes, parseStrict } from '#protocol/json';
import { type Registration, registrationSchema } from '#protocol/schemas/approvals';
import { nativeSha256 } from '#runtime/crypto/node';
import { valueOf } from '../db/columns.js';
import { type ListPlace, pageAfter, type TenantList } from '../db/paging.js';
import {
  asTenants,
  changeAsTenants,
  type Db,
  type Fragment,
  type Pool,
  type Transaction,
} from '../db/transaction.js';
import { AdministrationError, joinTransaction, tenantNumber } from '../tenants/audit.js';
import { intactKeys } from './signing-keys.js';

/**
 * Stores the registration of an approver, which the caller has verified, and appends its activation, unless the log
 * has adopted the activation of a lost registration. Returns the hash of the registration and the index of the entry.
 *
 * @throws AdministrationError
 */
export function addApprover(sql: Pool | Transaction, registration: Registration) {
  const registrationHash = documentHash(nativeSha256, registration);
  return joinTransaction(sql, async (tx) => {
    const tenantNo = await tenantNumber(tx, registration.tenant_id);
    const appended = await appendChange(tx, registrationHash, 'activate');
    const stored = await tx`
      insert into svc.approver (registration_hash, tenant_no, document)
      values (${Buffer.from(registrationHash, 'hex')}, ${tenantNo}, ${canonicalBytes(registration)})
      on conflict do nothing`;
    if (appended !== null) {
      if (stored.count > 0) return { registrationHash, leafIndex: appended };
      throw new AdministrationError(
        `registration ${registrationHash} is stored, but the log lacks its activation: run fsck`,
      );
    }
    const keys = await intactKeys(tx);
    const isActive = isActiveApprover(keys, registrationHash, Infinity);
    if (stored.count === 0 || !isActive) {
      const state = isActive ? 'already' : 'retired';
      throw new AdministrationError(`registration ${registrationHash} is ${state} in the log`);
    }
    return { registrationHash, leafIndex: approverActivationOf(keys, registrationHash)!.leafIndex };
  });
}

/** @throws AdministrationError */
export function retireApprover(sql: Pool | Transaction, registrationHash: string) {
  return joinTransaction(sql, async (tx) => {
    if (approverActivationOf(await intactKeys(tx), registrationHash) === null) {
      throw new AdministrationError(`registration ${registrationHash} was never activated`);
    }
    const leafIndex = await appendChange(tx, registrationHash, 'retire');
    if (leafIndex !== null) return { leafIndex };
    throw new AdministrationError(`registration ${registrationHash} is already retired`);
  });
}

/** Returns the index of the appended entry; null when the log already has such an entry. */
const appendChange = (
  tx: Transaction,
  registrationHash: string,
  change: 'activate' | 'retire',
): Promise<number | null> =>
  valueOf(tx`select svc.append_approver(${Buffer.from(registrationHash, 'hex')}, ${change})`);

/**
 * Registers an approver of the tenant, whose registration the caller has verified, on behalf of the API key
 * `managing`; idempotent.
 *
 * @returns null when `managing` is inactive or lacks the scope, `too_many` when the tenant can have no more
 */
export async function registerTenantApprover(
  sql: Pool,
  tenantNo: number,
  managing: number,
  registration: Registration,
): Promise<ApproverRow | 'too_many' | null> {
  const hash = documentHash(nativeSha256, registration);
  const read = () => asTenants(sql, [tenantNo], (tx) => ofTenant(tx, tenantNo, 1, null, hash));
  // Returns before taking the append lock, which would delay appends.
  const [earlier] = await read();
  if (earlier !== undefined) return earlier;
  const document = canonicalBytes(registration);
  const isDone = await valueOf<boolean | null>(
    changeAsTenants(
      sql,
      [tenantNo],
      (tx) => tx`select svc.register_approver(${managing}, ${document})`,
    ),
  );
  if (isDone !== true) return isDone === false ? 'too_many' : null;
  const [approver] = await read();
  return approver ?? null;
}

/**
 * Retires an approver of the tenant on behalf of the API key `managing`; idempotent.
 *
 * @returns `unknown` when the tenant has no such approver, null when `managing` is inactive or lacks the scope
 */
export async function retireTenantApprover(
  sql: Pool,
  tenantNo: number,
  managing: number,
  registrationHash: string,
): Promise<ApproverRow | 'unknown' | null> {
  const [approver] = await asTenants(sql, [tenantNo], (tx) =>
    ofTenant(tx, tenantNo, 1, null, registrationHash),
  );
  if (approver === undefined) return 'unknown';
  if (approver.state === 'retired') return approver;
  const hash = Buffer.from(registrationHash, 'hex');
  const isDone = await valueOf<boolean>(
    changeAsTenants(sql, [tenantNo], (tx) => tx`select svc.retire_approver(${managing}, ${hash})`),
  );
  return isDone ? { ...approver, state: 'retired' } : null;
}

/** The tenant's registration with this hash; null when the tenant has no such registration. */
export async function readApprover(
  tx: Db,
  tenantNo: number,
  registrationHash: string,
): Promise<Registration | null> {
  const [row] = await tx<{ document: Buffer }[]>`
    select document from svc.approver
    where registration_hash = ${Buffer.from(registrationHash, 'hex')} and tenant_no = ${tenantNo}`;
  return row === undefined ? null : registrationSchema.parse(parseStrict(row.document));
}

export interface ApproverRow {
  registrationHash: string;
  registration: Registration;
  /** The state at the next leaf: only an active approver's approvals have an effect. */
  state: 'active' | 'retired';
  leafIndex: number;
  /** The API key that registered the approver; null for a registration by the operator. */
  createdBy: string | null;
  createdAt: Date;
}

/** The approvers of a tenant after `after`, newest first. */
export const listTenantApprovers: TenantList<ApproverRow> = (sql, tenantNo, limit, after) =>
  asTenants(sql, [tenantNo], (tx) => ofTenant(tx, tenantNo, limit, after));

function ofTenant(
  tx: Db,
  tenantNo: number,
  limit: number,
  after: ListPlace | null,
  hash: string | null = null,
): Promise<ApproverRow[]> {
  const named = hash === null ? tx`` : tx`and a.registration_hash = ${Buffer.from(hash, 'hex')}`;
  return approversWhere(
    tx,
    tx`a.tenant_no = ${tenantNo} ${named}
      ${pageAfter(tx, ['a.created_at', 'a.registration_hash'], limit, after, fromHex)}`,
  );
}

/**
 * All approvers of a tenant, oldest first.
 *
 * @throws AdministrationError
 */
export async function listApprovers(sql: Db, tenantId: string): Promise<ApproverRow[]> {
  const tenantNo = await tenantNumber(sql, tenantId);
  return approversWhere(
    sql,
    sql`a.tenant_no = ${tenantNo} order by a.created_at, a.registration_hash`,
  );
}

async function approversWhere(sql: Db, condition: Fragment): Promise<ApproverRow[]> {
  type Row = Pick<ApproverRow, 'registrationHash' | 'createdBy' | 'createdAt'> & {
    document: Buffer;
  };
  const rows = await sql<Row[]>`
    select encode(a.registration_hash, 'hex') as "registrationHash", a.document,
      a.created_by as "createdBy", a.created_at as "createdAt"
    from svc.approver a where ${condition}`;
  const keys = rows.length === 0 ? [] : await intactKeys(sql);
  return rows.map(({ document, ...row }) => {
    const { registrationHash } = row;
    const activation = approverActivationOf(keys, registrationHash);
    if (activation === null) throw new Error(`the log lacks the registration ${registrationHash}`);
    const isActive = isActiveApprover(keys, registrationHash, Infinity);
    return {
      ...row,
      registration: registrationSchema.parse(parseStrict(document)),
      state: isActive ? 'active' : 'retired',
      leafIndex: activation.leafIndex,
    };
  });
}
