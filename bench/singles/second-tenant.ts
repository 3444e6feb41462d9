import { randomBytes } from 'node:crypto';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { nativeSha256 } from '#runtime/crypto/node';
import { connect } from '#runtime/postgres/connect';
import { createTenant } from '#sql/tenants/administration';
import { insertApiKey } from '#sql/tenants/api-keys';
import { withAuditContext } from '#sql/tenants/audit';
import type { BenchRegistry } from '../service/registry.js';

/** Who asks, and with which key. */
export interface BenchTenant {
  tenantId: string;
  apiKey: string;
}

/** Another tenant of a registry than the one that it comes with, as an administrator makes one. */
export async function createSecondTenant(
  registry: Pick<BenchRegistry, 'roleUrl'>,
): Promise<BenchTenant> {
  const tenantId = 'neighbour';
  const key = { keyId: apiKeyIdFrom(randomBytes(8)), secret: randomBytes(32) };
  const sql = connect(registry.roleUrl('svc_admin'), { application: 'bench', max: 1 });
  try {
    await withAuditContext(sql, { actor: 'bench', act: 'second tenant' }, async (tx) => {
      await createTenant(tx, { tenantId, environment: 'sandbox', allowlisted: true });
      await insertApiKey(tx, {
        keyId: key.keyId,
        tenantId,
        secretHash: apiKeySecretHash(nativeSha256, key.secret),
        scopes: ['admit'],
        reviewRef: 'bench',
      });
    });
  } finally {
    await sql.end({ timeout: 5 });
  }
  return { tenantId, apiKey: formatApiKey(key) };
}
