import { canonicalBytes } from '#protocol/canonical-json';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import type { TestDatabase } from './database.js';
import { headersFor, issueKey, type Reply, type TestEngine } from './engine.js';
import type { TestRegistry } from './registry.js';

/** Somebody with a key, who sends documents. */
export interface Client {
  get(path: string, headers?: Record<string, string>): Promise<Reply>;
  post(path: string, document: unknown, headers?: Record<string, string>): Promise<Reply>;
  delete(path: string): Promise<Reply>;
  /** The database's number of the key. */
  keyNo(): Promise<number>;
  keyId: string;
}

export async function clientOf(
  db: TestDatabase,
  registry: TestRegistry,
  engine: TestEngine,
  options: { tenantId?: string; scopes?: string[] } = {},
): Promise<Client> {
  const { tenantId, scopes = ['lifecycle'] } = options;
  if (tenantId !== undefined) {
    await createTenant(registry.admin, { tenantId, environment: 'sandbox' });
    await setAllowlisted(registry.admin, tenantId, true);
  }
  const key = await issueKey(registry, { scopes, ...(tenantId !== undefined && { tenantId }) });
  const keyId = key.split('_')[2] ?? '';
  const base = headersFor(key, tenantId);
  const call = (method: string, path: string, headers = {}, body?: Uint8Array): Promise<Reply> =>
    engine.call({
      method,
      path,
      headers: { ...base, ...headers },
      ...(body !== undefined && { body }),
    });
  return {
    get: (path, headers) => call('GET', path, headers),
    post: (path, document, headers) =>
      call('POST', path, headers, canonicalBytes(document as never)),
    delete: (path) => call('DELETE', path),
    keyId,
    keyNo: async () => {
      const [row] = await db.sql<{ key_no: number }[]>`
        select key_no from svc.api_key where key_id = ${keyId}`;
      return row?.key_no ?? 0;
    },
  };
}

export function revocationBody(overrides: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    schema_version: 'svc.lifecycle.revocation_request/1.0',
    artifact_kind: 'proof',
    reason: 'it was wrong',
    actor: 'auditor',
    ...overrides,
  };
}

/** Every row of every table, as text: what somebody finds who has the database. */
export async function wholeDatabase(db: TestDatabase): Promise<string> {
  const tables = await db.sql<{ name: string }[]>`
    select format('%I.%I', table_schema, table_name) as name from information_schema.tables
    where table_schema in ('svc', 'bullmq', 'public') and table_type = 'BASE TABLE'`;
  const dumps = await Promise.all(
    tables.map(async ({ name }) => {
      // Bytes as bytes and as what they spell: a token is a secret in either.
      const rows = await db.sql.unsafe<Record<string, unknown>[]>(`select * from ${name}`);
      return rows
        .flatMap((row) => Object.values(row))
        .map((value) =>
          Buffer.isBuffer(value)
            ? `${value.toString('latin1')} ${value.toString('hex')}`
            : (JSON.stringify(value) ?? ''),
        )
        .join('\n');
    }),
  );
  return dumps.join('\n');
}
