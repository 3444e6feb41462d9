import type { KeyRestriction, Scope } from '#protocol/schemas/api-keys';
import type { Environment } from '#protocol/schemas/primitives';
import { comparableTime, firstRow, valueOf } from '../db/columns.js';
import { pageAfter, type TenantList } from '../db/paging.js';
import {
  asTenants,
  changeAsTenants,
  type Db,
  type Pool,
  readAsTenants,
  type Transaction,
} from '../db/transaction.js';
import { AdministrationError, noTenant, tenantNumber, withGateLock } from './audit.js';

export interface NewApiKey {
  keyId: string;
  tenantId: string;
  secretHash: Uint8Array;
  scopes: string[];
  /** The architectural review that approved the key. */
  reviewRef: string;
  restriction?: KeyRestriction | null;
  /** Lifetime from now by the database clock, in seconds; null: unlimited. */
  lifetime?: number | null;
  /** The expiry in epoch milliseconds, instead of a lifetime. */
  expiresAt?: number | null;
}

/** Stores a key's hash; the database requires a review reference. @returns its expiry */
export async function insertApiKey(sql: Db, key: NewApiKey): Promise<Date | null> {
  const { lifetime = null, expiresAt = null } = key;
  const [row] = await sql<{ expiresAt: Date | null }[]>`
    insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref, expires_at,
      agent_id, actions, tools, environment)
    select ${key.keyId}, tenant_no, ${key.secretHash}, ${key.scopes}, ${key.reviewRef},
      coalesce(${expiresAt === null ? null : new Date(expiresAt)}::timestamptz,
        clock_timestamp() + make_interval(secs => ${lifetime}::double precision)),
      r.agent_id, r.actions, r.tools, r.environment
    from svc.tenant t, jsonb_to_record(${JSON.stringify(key.restriction ?? {})}::text::jsonb)
      as r(agent_id text, actions text[], tools text[], environment text)
    where tenant_id = ${key.tenantId}
    returning expires_at as "expiresAt"`;
  if (row === undefined) throw noTenant(key.tenantId);
  return row.expiresAt;
}

/**
 * Revokes a key and the keys that it created, permanently, but not the successor of a rotated key.
 * Accepted admissions of these keys that are not yet signed are rejected, too.
 */
export function revokeApiKey(sql: Pool | Transaction, keyId: string): Promise<void> {
  return withGateLock(sql, async (tx) => {
    const rows = await tx`
      update svc.api_key set revoked_at = coalesce(revoked_at, clock_timestamp())
      where key_id = ${keyId}`;
    if (rows.count === 0) throw noKey(keyId);
  });
}

/**
 * Brings a key's expiry forward to `seconds` from now; never postpones it. The keys that the key
 * created keep their expiry. @returns the expiry
 *
 * @throws AdministrationError when the key is unknown or revoked
 */
export async function expireApiKey(sql: Db, keyId: string, seconds: number): Promise<Date> {
  const [row] = await sql<{ expiresAt: Date }[]>`
    update svc.api_key set expires_at =
      least(expires_at, clock_timestamp() + make_interval(secs => ${seconds}::double precision))
    where key_id = ${keyId} and revoked_at is null returning expires_at as "expiresAt"`;
  if (row !== undefined) return row.expiresAt;
  const [revoked] = await sql`select from svc.api_key where key_id = ${keyId}`;
  if (revoked === undefined) throw noKey(keyId);
  throw new AdministrationError(`key ${keyId} is already revoked`);
}

export interface Rotation {
  tenantId: string;
  scopes: string[];
  restriction: KeyRestriction | null;
  reviewRef: string;
  newExpiresAt: Date | null;
  oldExpiresAt: Date;
}

/**
 * Issues the successor of a key with the same tenant, scopes, restriction, review, creator and lifetime.
 * The old key expires after the overlap, and stays the creator of the keys that it created.
 *
 * @throws AdministrationError when the old key is unknown, inactive or already rotated
 */
export function rotateApiKey(
  sql: Pool | Transaction,
  rotation: { oldKeyId: string; newKeyId: string; secretHash: Uint8Array; overlap: number },
): Promise<Rotation> {
  // Takes the append lock, so that a concurrent revocation of the creator revokes the successor too.
  return withGateLock(sql, async (tx) => {
    const { oldKeyId, newKeyId, secretHash, overlap } = rotation;
    const [old] = await tx<{ state: KeyState; tenantId: string }[]>`
      select ${tx.unsafe(STATE)} as state, t.tenant_id as "tenantId"
      from svc.api_key k join svc.tenant t using (tenant_no)
      where k.key_id = ${oldKeyId} for update of k`;
    if (old === undefined) throw noKey(oldKeyId);
    if (old.state !== 'active') {
      throw new AdministrationError(`key ${oldKeyId} is ${old.state}: issue a new one`);
    }
    // Runs after the row lock, so that it sees a concurrent rotation.
    const [successor] = await tx<{ id: string }[]>`
      select key_id as id from svc.api_key where replaces = ${oldKeyId}`;
    if (successor !== undefined) {
      throw new AdministrationError(`key ${oldKeyId} was already rotated, to ${successor.id}`);
    }
    const [fresh] = await tx<Omit<Rotation, 'tenantId' | 'oldExpiresAt'>[]>`
      insert into svc.api_key as k (key_id, tenant_no, secret_hash, scopes, review_ref, replaces,
        expires_at, created_by, agent_id, actions, tools, environment)
      select ${newKeyId}, tenant_no, ${secretHash}, scopes, review_ref, key_id,
        clock_timestamp() + (expires_at - created_at), created_by, agent_id, actions, tools, environment
      from svc.api_key where key_id = ${oldKeyId}
      returning scopes, ${restrictionOf(tx)}, review_ref as "reviewRef", expires_at as "newExpiresAt"`;
    if (fresh === undefined) throw noKey(oldKeyId);
    const oldExpiresAt = await expireApiKey(tx, oldKeyId, overlap);
    return { tenantId: old.tenantId, ...fresh, oldExpiresAt };
  });
}

export type KeyState = 'active' | 'expired' | 'revoked';

const STATE = `case when k.revoked_at is not null then 'revoked'
  when k.expires_at <= clock_timestamp() then 'expired' else 'active' end`;

/** The restriction of `svc.api_key k` as in the API; null without a restriction. */
const restrictionOf = (sql: Db) => sql`
  nullif(jsonb_strip_nulls(jsonb_build_object('agent_id', k.agent_id, 'actions', k.actions,
    'tools', k.tools, 'environment', k.environment)), '{}') as restriction`;

/** The public part of a key: never the hash of its secret. */
export interface ApiKeyRow {
  keyId: string;
  state: KeyState;
  scopes: Scope[];
  restriction: KeyRestriction | null;
  reviewRef: string;
  replaces: string | null;
  /** The API key that created this key, if any. */
  createdBy: string | null;
  createdAt: Date;
  expiresAt: Date | null;
  revokedAt: Date | null;
}

export async function listApiKeys(sql: Db, tenantId: string): Promise<ApiKeyRow[]> {
  const tenantNo = await tenantNumber(sql, tenantId);
  return sql<ApiKeyRow[]>`
    select ${keyColumns(sql)} from svc.api_key k where k.tenant_no = ${tenantNo} order by k.key_no`;
}

/** Columns of an ApiKeyRow, from `svc.api_key k`. */
const keyColumns = (sql: Db) => sql`
  k.key_id as "keyId", ${sql.unsafe(STATE)} as state, k.scopes, ${restrictionOf(sql)},
  k.review_ref as "reviewRef", k.replaces, k.created_by as "createdBy", k.created_at as "createdAt",
  k.expires_at as "expiresAt", k.revoked_at as "revokedAt"`;

export interface NewTenantKey {
  keyId: string;
  secretHash: Uint8Array;
  scopes: readonly Scope[];
  restriction: KeyRestriction | null;
  /** Epoch milliseconds; null: the expiry of the calling key. */
  expiresAt: number | null;
}

/**
 * Creates a key of the tenant on behalf of the calling key `managing`, which must have the scopes.
 * Copies the review of that key, and caps the expiry at that key's present expiry.
 *
 * @returns null when `managing` is inactive, or lacks a wanted scope; `too_many` when the tenant has too many keys
 */
export function createTenantKey(
  sql: Pool,
  tenantNo: number,
  managing: number,
  { keyId, secretHash, scopes, restriction, expiresAt }: NewTenantKey,
): Promise<ApiKeyRow | 'too_many' | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const isCreated = await valueOf<boolean | null>(tx`
      select svc.create_api_key(${managing}, ${keyId}, ${secretHash}, ${[...scopes]}::text[],
        ${JSON.stringify(restriction ?? {})}::text::jsonb,
        ${expiresAt === null ? null : comparableTime(expiresAt)}::timestamptz)`);
    if (isCreated !== true) return isCreated === null ? 'too_many' : null;
    return firstRow(tx<ApiKeyRow[]>`
      select ${keyColumns(tx)} from svc.api_key k
      where k.key_id = ${keyId} and k.tenant_no = ${tenantNo}`);
  });
}

/** The tenant's keys after `after`, newest first, including expired and revoked ones. */
export const listTenantKeys: TenantList<ApiKeyRow> = (sql, tenantNo, limit, after) =>
  asTenants(
    sql,
    [tenantNo],
    (tx) => tx<ApiKeyRow[]>`
      select ${keyColumns(tx)} from svc.api_key k
      where k.tenant_no = ${tenantNo} ${pageAfter(tx, ['k.created_at', 'k.key_id'], limit, after)}`,
  );

/**
 * Revokes a key of the tenant, and the keys that it created, on behalf of the calling key `managing`;
 * idempotent.
 *
 * @returns `unknown` when the tenant has no such key; `rejected` when `managing` is
 *   inactive or lacks the scope
 */
export async function revokeTenantKey(
  sql: Pool,
  tenantNo: number,
  managing: number,
  keyId: string,
): Promise<'revoked' | 'unknown' | 'rejected'> {
  const [own] = await readAsTenants(
    sql,
    [tenantNo],
    (tx) => tx<{ isRevoked: boolean }[]>`
      select revoked_at is not null as "isRevoked" from svc.api_key
      where key_id = ${keyId} and tenant_no = ${tenantNo}`,
  );
  if (own === undefined) return 'unknown';
  // Returns before taking the append lock, which would delay appends.
  if (own.isRevoked) return 'revoked';
  const isRevoked = await valueOf<boolean>(
    changeAsTenants(sql, [tenantNo], (tx) => tx`select svc.revoke_api_key(${managing}, ${keyId})`),
  );
  return isRevoked ? 'revoked' : 'rejected';
}

function noKey(keyId: string): AdministrationError {
  return new AdministrationError(
    `unknown key ${keyId}: run "key list <tenant_id>" to see the keys of a tenant`,
  );
}

/** The current state of an API key, for the checks of the engine. */
export interface Credential {
  secretHash: Buffer;
  /** The key's number, stored with its admissions. */
  keyNo: number;
  tenantNo: number;
  tenantId: string;
  environment: Environment;
  allowlisted: boolean;
  environmentOpen: boolean;
  scopes: string[];
  restriction: KeyRestriction | null;
  /** By the database's clock, which sets the expiry: an engine whose clock is behind accepts no expired key. */
  state: KeyState;
  /** Requests per second; null: the engine's default. */
  rateLimit: number | null;
}

/** The credentials of key ids, read in one query; unknown ids are absent. */
export async function authenticate(sql: Db, keyIds: string[]): Promise<Map<string, Credential>> {
  const rows = await sql<(Credential & { keyId: string })[]>`
    select k.key_id as "keyId", k.secret_hash as "secretHash", k.key_no as "keyNo",
      k.tenant_no as "tenantNo", t.tenant_id as "tenantId", t.environment, t.allowlisted,
      l.open as "environmentOpen", k.scopes, ${restrictionOf(sql)}, ${sql.unsafe(STATE)} as state,
      t.rate_limit as "rateLimit"
    from svc.api_key k
    join svc.tenant t using (tenant_no)
    join svc.lane l on l.environment = t.environment
    where k.key_id = any(${keyIds}::text[])`;
  return new Map(rows.map(({ keyId, ...row }) => [keyId, row]));
}
