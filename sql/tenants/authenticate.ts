import type { Db } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';

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
  laneOpen: boolean;
  scopes: string[];
  expiresAt: number | null;
  revokedAt: number | null;
  /** Requests per second; null: the engine's default. */
  rateLimit: number | null;
}

/** The credentials of key ids, read in one query; unknown ids are absent. */
export function authenticate(sql: Db, keyIds: string[]): Promise<Map<string, Credential>> {
  return mapDbErrors(async () => {
    const rows = await sql<
      {
        key_id: string;
        secret_hash: Buffer;
        key_no: number;
        tenant_no: number;
        tenant_id: string;
        environment: Environment;
        allowlisted: boolean;
        lane_open: boolean;
        scopes: string[];
        expires_at: Date | null;
        revoked_at: Date | null;
        rate_limit: number | null;
      }[]
    >`
      select k.key_id, k.secret_hash, k.key_no, k.tenant_no, t.tenant_id, t.environment, t.allowlisted,
        l.open as lane_open, k.scopes, k.expires_at, k.revoked_at, t.rate_limit
      from svc.api_key k
      join svc.tenant t using (tenant_no)
      join svc.lane l on l.environment = t.environment
      where k.key_id = any(${keyIds}::text[])`;
    return new Map(
      rows.map((row) => [
        row.key_id,
        {
          secretHash: row.secret_hash,
          keyNo: row.key_no,
          tenantNo: row.tenant_no,
          tenantId: row.tenant_id,
          environment: row.environment,
          allowlisted: row.allowlisted,
          laneOpen: row.lane_open,
          scopes: row.scopes,
          expiresAt: row.expires_at?.getTime() ?? null,
          revokedAt: row.revoked_at?.getTime() ?? null,
          rateLimit: row.rate_limit,
        },
      ]),
    );
  });
}
