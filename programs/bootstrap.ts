import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  apiKeySecretHash,
  formatApiKey,
  newApiKey,
  parseApiKey,
  type ApiKey,
} from '#runtime/crypto/api-key';
import type { Logger } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import { withPool } from '#runtime/postgres/connect';
import { withLogin } from '#runtime/postgres/hosts';
import { createPrivateFile, writePrivateFile } from '#runtime/process/files';
import { createTenant, setLane } from '#sql/tenants/administration';
import { insertApiKey } from '#sql/tenants/api-keys';
import type { Db } from '#sql/db/transaction';
import { migrateDatabase, type ProgramRole } from './migrate-database.js';
import { pinsOf } from './pins.js';
import { type AdmissionKeys, prepareAdmissions } from './shipped-policy.js';

interface BootstrapOptions {
  ownerUrl: string;
  dataDir: string;
  rolePassword: (role: ProgramRole) => string;
  keys: AdmissionKeys;
  openSandbox: boolean;
  log: Logger;
  /** Cancels the bootstrap; the next start continues it. */
  signal?: AbortSignal;
}

export type Bootstrapped = Awaited<ReturnType<typeof bootstrap>>;

const TENANT = 'demo';

/** Prepares an empty database for admissions; idempotent, so safe at every start. */
export async function bootstrap(options: BootstrapOptions) {
  const { ownerUrl, dataDir, rolePassword, keys, openSandbox, log, signal } = options;
  const applied = await migrateDatabase(ownerUrl, rolePassword, signal);
  if (applied.length > 0) log.info({ applied }, 'database migrated');
  const roleUrl = (role: ProgramRole): string => withLogin(ownerUrl, role, rolePassword(role));
  const key = await readApiKey(dataDir);
  const pool = { application: 'bootstrap', max: 1, ...(signal && { signal }) };
  return withPool(roleUrl('svc_admin'), pool, async (sql) => {
    await prepareAdmissions(sql, keys, log, async (tx) => {
      // Configures only a new tenant: later changes by an operator are kept.
      const [known] = await tx`select from svc.tenant where tenant_id = ${TENANT}`;
      if (known === undefined) {
        if (openSandbox) await setLane(tx, 'sandbox', true);
        await createTenant(tx, { tenantId: TENANT, environment: 'sandbox', allowlisted: true });
      }
      await ensureApiKey(tx, key);
    });
    writePrivateFile(join(dataDir, 'pins.json'), `${JSON.stringify(await pinsOf(sql))}\n`);
    return { roleUrl, tenantId: TENANT, apiKey: formatApiKey(key) };
  });
}

/** The demo tenant's key: the database has only its hash, a private file has the key. */
async function readApiKey(dataDir: string): Promise<ApiKey> {
  const file = join(dataDir, 'api-key');
  if (!existsSync(file)) createPrivateFile(file, `${newApiKey().text}\n`);
  const key = parseApiKey((await readFile(file, 'utf8')).trim());
  if (key !== null) return key;
  throw new OperatorError(`${file} does not hold an API key: remove it to get a new one`);
}

async function ensureApiKey(tx: Db, key: ApiKey): Promise<void> {
  const [known] = await tx`select from svc.api_key where key_id = ${key.keyId}`;
  if (known !== undefined) return;
  await insertApiKey(tx, {
    keyId: key.keyId,
    tenantId: TENANT,
    secretHash: apiKeySecretHash(key.secret),
    scopes: ['admit', 'read', 'export', 'verify', 'lifecycle', 'keys'],
    reviewRef: 'embedded-stack',
  });
}
