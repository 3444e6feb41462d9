import { setupConfig } from '#runtime/config';
import { runProgram } from '#runtime/process/lifecycle';
import { connect } from '#runtime/postgres/connect';
import { assertRole } from '#sql/db/roles';
import { readPublicKey } from './admin/aep-keys.js';
import { prepareAdmissions } from './shipped-policy.js';

/** Prepares a migrated database for admissions. */
const code = await runProgram(
  'setup',
  async (program) => {
    const { log } = program;
    const config = setupConfig();
    const publicKey = await readPublicKey(config.aepPublicKeyFile);
    const sql = connect(config.databaseUrl, { application: 'svc-setup', max: 1 });
    program.onStop(() => sql.end({ timeout: 5 }));
    await assertRole(sql, 'admin');
    await prepareAdmissions(sql, publicKey, log);
    log.info('policy set and AEP key are active');
  },
  { untilMainReturns: true },
);
process.exit(code);
