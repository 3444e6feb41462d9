import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { makePolicySet } from '#policy/policy-set';
import { shippedPolicy } from '#programs/shipped-policy';
import { prepareStack } from '#programs/stack';
import { parseEntry } from '#protocol/entries';
import type { VerdictEntry } from '#protocol/schemas/log-entry';
import { startConfig } from '#runtime/config';
import { newApiKey } from '#runtime/crypto/api-key';
import { startEmbeddedPostgres } from '#runtime/embedded/start';
import { logger } from '#runtime/process/log';
import { connect, withPool } from '#runtime/postgres/connect';
import { type PolicyFiles, storePolicySet } from '#sql/admissions/policies';
import { fromUuid } from '#sql/db/columns';
import type { Db, Pool } from '#sql/db/transaction';
import { latestEntry } from '#sql/log/log';
import { createTenant } from '#sql/tenants/administration';
import { insertApiKey, type NewApiKey } from '#sql/tenants/api-keys';
import { withAuditContext } from '#sql/tenants/audit';
import type { Cleanup } from './cleanup.js';
import type { Credential } from './engine-api.js';

/** A registry in a data directory that `npm start` could use, too. */
export type BenchRegistry = Awaited<ReturnType<typeof openBenchRegistry>>;

/**
 * Starts the embedded Postgres of `dataDir` as the service does, with fsync, and creates in it the same
 * objects as `npm start`: schema, tenant, API key, policy and an active signing key.
 *
 * @param settings of the programs, in addition to the settings that all scenarios share
 */
export async function openBenchRegistry(
  dataDir: string,
  cleanup: Cleanup,
  settings: Record<string, string> = {},
) {
  const config = startConfig({
    DATA_DIR: resolve(dataDir),
    LOG_LEVEL: 'warn',
    ENGINE_PORT: '0',
    PUBLIC_PORT: '0',
    // No load of the bench reaches this limit, but Redis still counts each request.
    RATE_LIMIT: '1000000',
    ...settings,
  });
  const { dataDir: home, snapshotPlace: snapshotDir, logOrigin: origin } = config;
  await mkdir(snapshotDir, { recursive: true, mode: 0o755 });
  const postgres = await startEmbeddedPostgres({ dataDir: home });
  // The data directory survives the stop: PostgreSQL has written every commit to disk.
  cleanup.push(() => postgres.stop());
  const ownerUrl = postgres.superuserUrl;
  /** A pool of the database's owner, without a statement timeout. */
  const owner: Pool = connect(ownerUrl, { application: 'bench', max: 2, statementTimeoutMs: 0 });
  cleanup.push(() => owner.end({ timeout: 5 }));
  const database = { ownerUrl, rolePassword: (role: string) => postgres.rolePassword(role) };
  const { signal } = new AbortController();
  const prepared = await prepareStack(config, database, { log: logger('bench', 'warn'), signal });
  return { ...prepared, snapshotDir, origin, postgresPid: postgres.pid, owner, ownerUrl };
}

/** Creates tenants with an API key each, as an administrator does. */
export async function createTenants(
  registry: BenchRegistry,
  tenantIds: readonly string[],
): Promise<Credential[]> {
  return withPool(registry.roleUrl('svc_admin'), { application: 'bench', max: 1 }, (sql) =>
    withAuditContext(sql, { actor: 'bench', act: 'more tenants' }, async (tx) => {
      const credentials: Credential[] = [];
      for (const tenantId of tenantIds) {
        await createTenant(tx, { tenantId, environment: 'sandbox', allowlisted: true });
        const apiKey = await insertKey(tx, { tenantId, scopes: ['admit'] });
        credentials.push({ tenantId, apiKey });
      }
      return credentials;
    }),
  );
}

export async function insertKey(
  sql: Db,
  key: Pick<NewApiKey, 'tenantId' | 'scopes' | 'restriction'>,
): Promise<string> {
  const { text, ...stored } = newApiKey();
  await insertApiKey(sql, { ...stored, ...key, reviewRef: 'bench' });
  return text;
}

/**
 * Stores the shipped policy set with additional rules and counters; returns its digest.
 *
 * @param declared a text in the shipped schema, and its replacement
 */
export async function storePolicyVariant(
  sql: Db,
  {
    declared: [part, replacement] = ['', ''],
    policies = {},
    counters,
  }: Partial<Pick<PolicyFiles, 'policies' | 'counters'>> & { declared?: [string, string] },
): Promise<Buffer> {
  const { files } = await shippedPolicy();
  const set = await makePolicySet({
    ...files,
    schema: files.schema.replace(part, replacement),
    policies: { ...files.policies, ...policies },
    ...(counters && { counters }),
  });
  await storePolicySet(sql, set);
  return set.digest;
}

/** IDs of up to `count` random proofs among the leaves `[from, to)`. */
export const randomProofIds =
  ({ owner }: BenchRegistry) =>
  async (from: number, to: number, count: number): Promise<string[]> => {
    const rows = await owner<{ id: string }[]>`
      select proof_id::text as id from svc.log_entry where kind = 1 and leaf_index >= ${from} and leaf_index < ${to} order by random() limit ${count}`;
    return rows.map(({ id }) => fromUuid(id));
  };

/** The size of the tree that the last verdict entry among the first `treeSize` leaves covers. */
export async function verifiedSize(owner: Pool, treeSize: number): Promise<number> {
  const last = await latestEntry(owner, 'verdict', treeSize);
  return last === null ? 0 : (parseEntry(last.body) as VerdictEntry).to;
}

export async function proofsAmong(owner: Pool, from: number, to: number): Promise<number> {
  const [row] = await owner<{ proofs: number }[]>`
    select count(*)::int as proofs from svc.log_entry
    where kind = 1 and leaf_index >= ${from} and leaf_index < ${to}`;
  return row?.proofs ?? 0;
}

/** Counts proofs, and bytes of the registry's tables with indexes and TOAST; without WAL and the queue. */
export async function databaseSize(owner: Pool) {
  const [row] = await owner<{ bytes: number; proofs: number }[]>`
    select (select sum(pg_total_relation_size(oid))::bigint from pg_class
        where relkind = 'r' and relnamespace = 'svc'::regnamespace) as bytes,
      (select count(*) from svc.log_entry where kind = 1) as proofs`;
  return { bytes: row?.bytes ?? 0, proofs: row?.proofs ?? 0 };
}
