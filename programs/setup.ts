import { jwkThumbprint } from '#protocol/keys';
import { toBase64Url } from '#protocol/bytes';
import { setupConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { runProgram } from '#runtime/process/lifecycle';
import { connect } from '#runtime/postgres/connect';
import { withAuditContext } from '#sql/tenants/audit';
import { ensureKeyActive } from '#sql/lifecycle/entries';
import { assertRole } from '#sql/db/roles';
import { readPublicKey } from './admin/vkeys.js';
import { BOOTSTRAP, ensurePolicy, shippedPolicy } from './shipped-policy.js';

/**
 * Activates a policy set and the AEP key in a migrated database, which cannot commit admissions
 * without them. Idempotent: keeps what an operator activated or retired.
 */
const code = await runProgram(
  'setup',
  async (program) => {
    const { log } = program;
    const config = setupConfig();
    const publicKey = await readPublicKey(config.aepPublicKeyFile);
    const shipped = await shippedPolicy();
    const sql = connect(config.databaseUrl, { application: 'svc-setup', max: 1 });
    program.onStop(() => sql.end({ timeout: 5 }));
    await assertRole(sql, 'admin');
    await withAuditContext(sql, { actor: BOOTSTRAP, act: BOOTSTRAP }, async (tx) => {
      await ensurePolicy(tx, shipped, log);
      await ensureKeyActive(tx, nativeSha256, {
        keyId: jwkThumbprint(nativeSha256, publicKey),
        publicKey: toBase64Url(publicKey),
      });
    });
    log.info('policy set and AEP key are active');
  },
  { untilMainReturns: true },
);
process.exit(code);
