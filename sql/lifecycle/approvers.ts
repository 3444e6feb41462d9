import { entryBytes, parseEntry } from '#protocol/entries';
import { documentHash } from '#protocol/hash';
import { canonicalBytes, parseStrict } from '#protocol/json';
import type { Registration } from '#protocol/schemas/approvals';
import { registrationSchema } from '#protocol/schemas/approvals';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Db, Pool, Transaction } from '../db/transaction.js';
import { appendLocked, lockHead } from '../log/append.js';
import { keyEntries } from '../log/keys.js';
import { databaseTime } from '../log/verdicts.js';
import { AdministrationError, joinTransaction, noTenant } from '../tenants/audit.js';

/**
 * Stores the registration of an approver, which the caller has verified, and appends its activation.
 * Returns the hash of the registration and the index of the entry.
 *
 * @throws AdministrationError
 */
export function addApprover(
  sql: Pool | Transaction,
  registration: Registration,
): Promise<{ registrationHash: string; leafIndex: number }> {
  const registrationHash = documentHash(nativeSha256, registration);
  return joinTransaction(sql, async (tx) => {
    const size = await lockHead(tx);
    if ((await changesOf(tx, registrationHash)).length > 0) {
      throw new AdministrationError(`registration ${registrationHash} is already in the log`);
    }
    const stored = await tx`
      insert into svc.approver (registration_hash, tenant_no, document)
      select ${Buffer.from(registrationHash, 'hex')}, tenant_no, ${canonicalBytes(registration)}
      from svc.tenant where tenant_id = ${registration.tenant_id}`;
    if (stored.count === 0) throw noTenant(registration.tenant_id);
    const leafIndex = await appendChange(tx, size, registrationHash, 'activate');
    return { registrationHash, leafIndex };
  });
}

/** @throws AdministrationError */
export function retireApprover(
  sql: Pool | Transaction,
  registrationHash: string,
): Promise<{ leafIndex: number }> {
  return joinTransaction(sql, async (tx) => {
    const size = await lockHead(tx);
    if (!(await changesOf(tx, registrationHash)).includes('activate')) {
      throw new AdministrationError(`registration ${registrationHash} was never activated`);
    }
    return { leafIndex: await appendChange(tx, size, registrationHash, 'retire') };
  });
}

async function changesOf(tx: Transaction, registrationHash: string): Promise<string[]> {
  return (await keyEntries(tx)).flatMap(({ body }) => {
    const entry = parseEntry(body);
    const isOf = entry.type === 'key' && entry.use === 'approver';
    return isOf && entry.registration_hash === registrationHash ? [entry.change] : [];
  });
}

async function appendChange(
  tx: Transaction,
  size: number,
  registrationHash: string,
  change: 'activate' | 'retire',
): Promise<number> {
  const at = await databaseTime(tx);
  const body = entryBytes({
    type: 'key',
    use: 'approver',
    registration_hash: registrationHash,
    change,
    time: formatTime(at),
  });
  await appendLocked(tx, nativeSha256, size, [{ kind: 'key', at, body }]);
  return size;
}

/** The tenant's registration of this hash; null when there is none. */
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

/** The registrations of a tenant, oldest first. */
export async function listApprovers(
  sql: Db,
  tenantId: string,
): Promise<{ registrationHash: string; registration: Registration }[]> {
  const rows = await sql<{ registrationHash: string; document: Buffer }[]>`
    select encode(registration_hash, 'hex') as "registrationHash", document
    from svc.approver join svc.tenant using (tenant_no)
    where tenant_id = ${tenantId} order by svc.approver.created_at, registration_hash`;
  return rows.map(({ registrationHash, document }) => ({
    registrationHash,
    registration: registrationSchema.parse(parseStrict(document)),
  }));
}
