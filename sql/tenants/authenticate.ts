import type { Db } from '../db/transaction.js';
import { inMs, type WithDates } from '../db/columns.js';

export type Environment = 'sandbox' | 'live';

/** The current state of an API key, for every gate. */
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
  expiresAt: number | null;
  revokedAt: number | null;
  /** Requests per second; null: the engine's default. */
  rateLimit: number | null;
}

/** The credentials of key ids, read in one query; unknown ids are absent. */
export async function authenticate(sql: Db, keyIds: string[]): Promise<Map<string, Credential>> {
  type Row = WithDates<Credential, 'expiresAt' | 'revokedAt'> & { keyId: string };
  const rows = await sql<Row[]>`
    select k.key_id as "keyId", k.secret_hash as "secretHash", k.key_no as "keyNo",
      k.tenant_no as "tenantNo", t.tenant_id as "tenantId", t.environment, t.allowlisted,
      l.open as "environmentOpen", k.scopes, k.expires_at as "expiresAt", k.revoked_at as "revokedAt",
      t.rate_limit as "rateLimit"
    from svc.api_key k
    join svc.tenant t using (tenant_no)
    join svc.lane l on l.environment = t.environment
    where k.key_id = any(${keyIds}::text[])`;
  return new Map(rows.map(({ keyId, ...row }) => [keyId, inMs(row)]));
}
