import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey, parseApiKey } from '#protocol/api-key';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { nativeSha256 } from '#runtime/crypto';
import type { Logger } from '#runtime/log';
import { packageRoot } from '#runtime/package-root';
import { connect } from '#runtime/postgres';
import { createPrivateFile } from '#runtime/private-file';
import { createTenant, insertApiKey, setLane } from '#sql/administration';
import { ensureKeyActive } from '#sql/lifecycle';
import type { Pool } from '#sql/db';
import { activatePolicy, activePolicy, storePolicySet } from '#sql/policies';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { migrateDatabase, type ProgramRole } from './migrate-database.js';

export interface BootstrapOptions {
  /** Connects as the owner of the database. */
  ownerUrl: string;
  dataDir: string;
  rolePassword: (role: ProgramRole) => string;
  /** The AEP key's public half, 32 bytes. */
  aepPublicKey: Uint8Array;
  openSandbox: boolean;
  log: Logger;
}

export interface Bootstrapped {
  roleUrl(role: ProgramRole): string;
  tenantId: string;
  apiKey: string;
}

const TENANT = 'demo';

/** Everything between an empty database and a stack that admits: safe to run at every start. */
export async function bootstrap(options: BootstrapOptions): Promise<Bootstrapped> {
  const { ownerUrl, dataDir, rolePassword, aepPublicKey, openSandbox, log } = options;
  const applied = await migrateDatabase(ownerUrl, rolePassword);
  if (applied.length > 0) log.info({ applied }, 'the database is migrated');
  const roleUrl = (role: ProgramRole): string => {
    const url = new URL(ownerUrl);
    url.username = role;
    url.password = rolePassword(role);
    return url.toString();
  };
  const sql = connect(roleUrl('svc_admin'), { application: 'bootstrap', max: 2 });
  try {
    await ensurePolicy(sql);
    await ensureKeyActive(sql, nativeSha256, {
      keyId: jwkThumbprint(nativeSha256, aepPublicKey),
      publicKey: toBase64Url(aepPublicKey),
    });
    // Only the first time: what an operator locked or disallowed since then stays so. The tenant
    // comes last, so that a start that was cut short begins again.
    const [known] = await sql`select from svc.tenant where tenant_id = ${TENANT}`;
    if (known === undefined) {
      if (openSandbox) await setLane(sql, 'sandbox', true);
      await createTenant(sql, { tenantId: TENANT, environment: 'sandbox', allowlisted: true });
    }
    return { roleUrl, tenantId: TENANT, apiKey: await ensureApiKey(sql, dataDir) };
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Stores the shipped default set, and activates it where nothing decides yet. */
async function ensurePolicy(sql: Pool): Promise<void> {
  const folder = join(packageRoot, 'policy', 'default');
  const set = await makePolicySet(await readPolicyFolder(folder));
  await storePolicySet(sql, set);
  if ((await activePolicy(sql)) === null) await activatePolicy(sql, set.digest);
}

/** The demo tenant's key: only its hash is in the database, the key itself in a private file. */
async function ensureApiKey(sql: Pool, dataDir: string): Promise<string> {
  const file = join(dataDir, 'api-key');
  const text = existsSync(file) ? (await readFile(file, 'utf8')).trim() : newApiKey();
  const key = parseApiKey(text);
  if (key === null) throw new Error(`${file} does not hold an API key: remove it to get a new one`);
  if (!existsSync(file)) createPrivateFile(file, `${text}\n`);
  const [known] = await sql`select from svc.api_key where key_id = ${key.keyId}`;
  if (known === undefined) {
    await insertApiKey(sql, {
      keyId: key.keyId,
      tenantId: TENANT,
      secretHash: apiKeySecretHash(nativeSha256, key.secret),
      scopes: ['admit', 'read', 'export', 'verify', 'lifecycle'],
      reviewRef: 'embedded-stack',
      expiresAt: null,
    });
  }
  return text;
}

function newApiKey(): string {
  return formatApiKey({ keyId: apiKeyIdFrom(randomBytes(8)), secret: randomBytes(32) });
}
