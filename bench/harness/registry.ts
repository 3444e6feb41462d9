import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { bootstrap } from '#programs/bootstrap';
import type { ProgramRole } from '#programs/migrate-database';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { formatVkey, parseVkey } from '#protocol/note';
import { LOCAL_ORIGIN } from '#runtime/config';
import {
  createSigningKey,
  loadSigningKey,
  nativeSha256,
  type SigningKey,
} from '#runtime/crypto/node';
import { startEmbeddedPostgres } from '#runtime/embedded/start';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import { fromUuid } from '#sql/db/columns';
import type { Pool } from '#sql/db/transaction';
import { createTenant } from '#sql/tenants/administration';
import { insertApiKey } from '#sql/tenants/api-keys';
import { withAuditContext } from '#sql/tenants/audit';
import type { Cleanup } from './cleanup.js';
import type { Credential } from './engine-api.js';

/** A registry in a data directory with the layout of `npm start`, which could use it too. */
export interface BenchRegistry {
  snapshotDir: string;
  postgresPid: number;
  /** A pool of the database's owner, without a statement timeout. */
  owner: Pool;
  ownerUrl: string;
  roleUrl: (role: ProgramRole) => string;
  tenantId: string;
  apiKey: string;
  keyFiles: { aep: string; verifier: string; log: string };
  origin: string;
  logVkey: string;
  pinsFile: string;
}

const openKey = (file: string): SigningKey =>
  existsSync(file) ? loadSigningKey(file) : createSigningKey(file);

/**
 * Starts the embedded Postgres of `dataDir` as the service does, with fsync, and creates in it what
 * `npm start` does: schema, tenant, API key, policy and an active signing key.
 *
 * @throws Error when the database does not keep what it commits
 */
export async function openBenchRegistry(dataDir: string, cleanup: Cleanup): Promise<BenchRegistry> {
  const home = resolve(dataDir);
  const snapshotDir = join(home, 'public');
  await mkdir(home, { recursive: true, mode: 0o755 });
  await mkdir(snapshotDir, { recursive: true, mode: 0o755 });
  const postgres = await startEmbeddedPostgres({ dataDir: home });
  // A plain stop is safe: everything committed is on disk.
  cleanup.push(() => postgres.stop());
  const ownerUrl = postgres.superuserUrl;
  const owner = connect(ownerUrl, { application: 'bench', max: 2, statementTimeoutMs: 0 });
  cleanup.push(() => owner.end({ timeout: 5 }));
  const keyFiles = {
    aep: join(home, 'aep-key.pem'),
    verifier: join(home, 'verifier-key.pem'),
    log: join(home, 'log-key.pem'),
  };
  const [aep, verifier, log] = Object.values(keyFiles).map(openKey);
  const origin = LOCAL_ORIGIN;
  const logVkey = formatVkey(nativeSha256, origin, log!.publicKey);
  const { tenantId, apiKey, ...admitted } = await bootstrap({
    ownerUrl,
    dataDir: home,
    rolePassword: (role) => postgres.rolePassword(role),
    keys: { aep: aep!.publicKey, verifier: verifier!.publicKey, log: parseVkey(logVkey) },
    openSandbox: true,
    log: logger('bench', 'warn'),
  });
  const roleUrl = (role: ProgramRole): string => admitted.roleUrl(role);
  for (const role of WRITERS) await requireDurable(role, roleUrl(role));
  return {
    snapshotDir,
    postgresPid: postgres.pid,
    owner,
    ownerUrl,
    roleUrl,
    tenantId,
    apiKey,
    keyFiles,
    origin,
    pinsFile: join(home, 'pins.json'),
    logVkey,
  };
}

/** Settings without which a crash may lose commits, and figures would not be comparable. */
const DURABLE = ['fsync', 'synchronous_commit', 'full_page_writes'];

const WRITERS = ['svc_engine', 'svc_worker', 'svc_verifier', 'svc_publisher'] as const;

/** @throws Error when a durability setting is off for a role that writes */
async function requireDurable(role: ProgramRole, url: string): Promise<void> {
  const sql = connect(url, { application: 'bench', max: 1 });
  try {
    const off = await sql<{ name: string }[]>`
      select name from pg_settings where name = any(${DURABLE}) and setting <> 'on'`;
    if (off.length > 0) throw new Error(`${off.map(({ name }) => name).join()} of ${role} is off`);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Creates tenants with an API key each, as an administrator does. */
export async function createTenants(
  registry: BenchRegistry,
  tenantIds: readonly string[],
): Promise<Credential[]> {
  const sql = connect(registry.roleUrl('svc_admin'), { application: 'bench', max: 1 });
  try {
    return await withAuditContext(sql, { actor: 'bench', act: 'more tenants' }, async (tx) => {
      const credentials: Credential[] = [];
      for (const tenantId of tenantIds) {
        const key = { keyId: apiKeyIdFrom(randomBytes(8)), secret: randomBytes(32) };
        await createTenant(tx, { tenantId, environment: 'sandbox', allowlisted: true });
        await insertApiKey(tx, {
          keyId: key.keyId,
          tenantId,
          secretHash: apiKeySecretHash(nativeSha256, key.secret),
          scopes: ['admit'],
          reviewRef: 'bench',
        });
        credentials.push({ tenantId, apiKey: formatApiKey(key) });
      }
      return credentials;
    });
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** IDs of up to `count` random proofs among the leaves `[from, to)`. */
export const randomProofIds =
  ({ owner }: BenchRegistry) =>
  async (from: number, to: number, count: number): Promise<string[]> => {
    const rows = await owner<{ id: string }[]>`
      select proof_id::text as id from svc.log_entry where kind = 1 and leaf_index >= ${from} and leaf_index < ${to} order by random() limit ${count}`;
    return rows.map(({ id }) => fromUuid(id));
  };

/** Number of proofs among the leaves `[from, to)`. */
export async function proofsAmong(owner: Pool, from: number, to: number): Promise<number> {
  const [row] = await owner<{ proofs: number }[]>`
    select count(*)::int as proofs from svc.log_entry
    where kind = 1 and leaf_index >= ${from} and leaf_index < ${to}`;
  return row?.proofs ?? 0;
}

export interface DatabaseSize {
  /** Bytes of all tables of the registry with indexes and TOAST; without WAL and the queue. */
  bytes: number;
  proofs: number;
}

export async function databaseSize(owner: Pool): Promise<DatabaseSize> {
  const [row] = await owner<DatabaseSize[]>`
    select (select sum(pg_total_relation_size(oid))::bigint from pg_class
        where relkind = 'r' and relnamespace = 'svc'::regnamespace) as bytes,
      (select count(*) from svc.log_entry where kind = 1) as proofs`;
  return { bytes: row?.bytes ?? 0, proofs: row?.proofs ?? 0 };
}
