import type { ArtifactKind } from '#protocol/status';
import type { Db, Pool, Transaction } from './db.js';
import { asking } from './errors.js';
import { lockHead } from './log.js';
import { transaction } from './transaction.js';
import type { Environment } from './tenants.js';

/** What was to be changed does not exist, or may not be changed like this. */
export class AdministrationError extends Error {
  override readonly name = 'AdministrationError';
}

/** Creates a tenant. @returns false when it is there already, in that environment */
export function createTenant(
  sql: Db,
  tenant: { tenantId: string; environment: Environment; allowlisted?: boolean },
): Promise<boolean> {
  return asking(async () => {
    const { tenantId, environment, allowlisted = false } = tenant;
    const created = await sql`
      insert into svc.tenant (tenant_id, environment, allowlisted)
      values (${tenantId}, ${environment}, ${allowlisted}) on conflict do nothing`;
    if (created.count === 1) return true;
    const [present] = await sql<{ environment: string }[]>`
      select environment from svc.tenant where tenant_id = ${tenantId}`;
    if (present?.environment !== environment) {
      throw new AdministrationError(
        `tenant ${tenantId} is a ${present?.environment ?? '?'} tenant, and stays one`,
      );
    }
    return false;
  });
}

/**
 * Gate changes take the append lock. A worker asks the gates under the same lock, so once this has
 * returned nothing is appended that the old state of the gate would have let through.
 */
function changingGates(sql: Pool, change: (tx: Transaction) => Promise<number>): Promise<void> {
  return transaction(sql, async (tx) => {
    await lockHead(tx);
    if ((await change(tx)) === 0) throw new AdministrationError('there is no tenant of that name');
  });
}

export function setAllowlisted(sql: Pool, tenantId: string, allowlisted: boolean): Promise<void> {
  return changingGates(sql, async (tx) => {
    const rows = await tx`
      update svc.tenant set allowlisted = ${allowlisted} where tenant_id = ${tenantId}`;
    return rows.count;
  });
}

export function setLane(sql: Pool, environment: Environment, open: boolean): Promise<void> {
  return changingGates(sql, async (tx) => {
    const rows = await tx`
      update svc.lane set open = ${open}, changed_at = now() where environment = ${environment}`;
    return rows.count;
  });
}

/** How long artifacts of admissions accepted from now on assert, in seconds; null: no end. */
export function setValidity(
  sql: Db,
  tenantId: string,
  validity: Record<ArtifactKind, number | null>,
): Promise<void> {
  return asking(async () => {
    const rows = await sql`
      update svc.tenant set validity = ${sql.json(validity)} where tenant_id = ${tenantId}`;
    if (rows.count === 0) throw new AdministrationError(`there is no tenant ${tenantId}`);
  });
}

/** Stores a key's hash. A key is issued only against a recorded review. */
export function insertApiKey(
  sql: Db,
  key: {
    keyId: string;
    tenantId: string;
    secretHash: Uint8Array;
    scopes: string[];
    reviewRef: string;
    expiresAt: number | null;
  },
): Promise<void> {
  return asking(async () => {
    const rows = await sql`
      insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref, expires_at)
      select ${key.keyId}, tenant_no, ${Buffer.from(key.secretHash)}, ${key.scopes},
        ${key.reviewRef}, ${key.expiresAt === null ? null : new Date(key.expiresAt)}
      from svc.tenant where tenant_id = ${key.tenantId}`;
    if (rows.count === 0) throw new AdministrationError(`there is no tenant ${key.tenantId}`);
  });
}

export function revokeApiKey(sql: Db, keyId: string): Promise<void> {
  return asking(async () => {
    const rows = await sql`
      update svc.api_key set revoked_at = coalesce(revoked_at, now()) where key_id = ${keyId}`;
    if (rows.count === 0) throw new AdministrationError(`there is no key ${keyId}`);
  });
}

/** Stores a proof-chain fixture. Fixtures never change; another content needs another reference. */
export function putFixture(
  sql: Db,
  fixture: { fixtureRef: string; fixtureHash: Uint8Array; content: Uint8Array },
): Promise<void> {
  return asking(async () => {
    await sql`
      insert into svc.fixture (fixture_ref, fixture_hash, content)
      values (${fixture.fixtureRef}, ${Buffer.from(fixture.fixtureHash)},
        ${Buffer.from(fixture.content)})`;
  });
}
