import type { ArtifactKind } from '#protocol/status';
import { AdministrationError, noTenant, withGateLock } from './audit.js';
import type { Db, Fragment, Pool, Transaction } from '../db/transaction.js';
import type { Environment } from '#protocol/schemas/primitives';

/** Creates a tenant. @returns false when it already exists in that environment */
export async function createTenant(
  sql: Db,
  tenant: { tenantId: string; environment: Environment; allowlisted?: boolean },
): Promise<boolean> {
  const { tenantId, environment, allowlisted = false } = tenant;
  const created = await sql`
    insert into svc.tenant (tenant_id, environment, allowlisted)
    values (${tenantId}, ${environment}, ${allowlisted}) on conflict do nothing`;
  if (created.count === 1) return true;
  const [present] = await sql<{ environment: string }[]>`
    select environment from svc.tenant where tenant_id = ${tenantId}`;
  if (present?.environment === environment) return false;
  throw new AdministrationError(
    `tenant ${tenantId} already exists in the environment ${present?.environment ?? '?'}, which cannot change`,
  );
}

export function setAllowlisted(
  sql: Pool | Transaction,
  tenantId: string,
  allowlisted: boolean,
): Promise<void> {
  return withGateLock(sql, (tx) => updateTenant(tx, tenantId, tx`allowlisted = ${allowlisted}`));
}

export function setLane(
  sql: Pool | Transaction,
  environment: Environment,
  open: boolean,
): Promise<void> {
  return withGateLock(sql, async (tx) => {
    const rows = await tx`
      update svc.lane set open = ${open}, changed_at = now() where environment = ${environment}`;
    if (rows.count > 0) return;
    throw new AdministrationError(
      `svc.lane has no row of ${environment}, so it stays locked: restore the row from a backup`,
    );
  });
}

async function updateTenant(sql: Db, tenantId: string, change: Fragment): Promise<void> {
  const rows = await sql`update svc.tenant set ${change} where tenant_id = ${tenantId}`;
  if (rows.count === 0) throw noTenant(tenantId);
}

/**
 * Sets the validity of artifacts of future admissions, or for how long an action that requires an approval can be
 * approved, in seconds; null: unlimited.
 */
export const setValidity = (
  sql: Db,
  tenantId: string,
  validity: Record<ArtifactKind, number | null> | { approval: number },
): Promise<void> => updateTenant(sql, tenantId, sql`validity = validity || ${sql.json(validity)}`);

/** Sets the tenant's requests per second; null: the engine's default. */
export const setRateLimit = (sql: Db, tenantId: string, perSecond: number | null): Promise<void> =>
  updateTenant(sql, tenantId, sql`rate_limit = ${perSecond}`);

export interface TenantRow {
  tenantId: string;
  environment: Environment;
  allowlisted: boolean;
  rateLimit: number | null;
  validity: Record<ArtifactKind, number | null>;
  keys: number;
  createdAt: Date;
}

export function listTenants(sql: Db): Promise<TenantRow[]> {
  return sql<TenantRow[]>`
    select tenant_id as "tenantId", environment, allowlisted, rate_limit as "rateLimit", validity,
      created_at as "createdAt",
      (select count(*) from svc.api_key k where k.tenant_no = t.tenant_no
        and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())) as keys
    from svc.tenant t order by tenant_id`;
}

export const listLanes = (sql: Db) =>
  sql<{ environment: Environment; open: boolean; changedAt: Date }[]>`
    select environment, open, changed_at as "changedAt" from svc.lane order by environment`;

/**
 * Stores a proof-chain fixture: a document that execute requests name by `proof_chain_fixture_ref`.
 * Fixtures never change; different content needs another reference.
 *
 * @returns false when the same fixture is already stored
 */
export async function putFixture(
  sql: Db,
  fixture: { fixtureRef: string; fixtureHash: Uint8Array; content: Uint8Array },
): Promise<boolean> {
  const { fixtureRef, fixtureHash, content } = fixture;
  const stored = await sql`
    insert into svc.fixture (fixture_ref, fixture_hash, content)
    values (${fixtureRef}, ${fixtureHash}, ${content})
    on conflict do nothing`;
  if (stored.count === 1) return true;
  const [present] = await sql<{ hash: Buffer }[]>`
    select fixture_hash as hash from svc.fixture where fixture_ref = ${fixtureRef}`;
  if (present?.hash.equals(fixtureHash) === true) return false;
  throw new AdministrationError(
    `fixture ${fixtureRef} exists with different content, and fixtures never change: choose another reference`,
  );
}

export const listFixtures = (sql: Db) =>
  sql<{ fixtureRef: string; fixtureHash: Buffer; bytes: number; createdAt: Date }[]>`
    select fixture_ref as "fixtureRef", fixture_hash as "fixtureHash", length(content) as bytes,
      created_at as "createdAt"
    from svc.fixture order by fixture_ref`;
