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
    const keys = {
      aep: await readPublicKey(config.aepPublicKeyFile),
      verifier: await readPublicKey(config.verifierPublicKeyFile),
    };
    const sql = connect(config.databaseUrl, { application: 'svc-setup', max: 1 });
    program.onStop(() => sql.end({ timeout: 5 }));
    await assertRole(sql, 'admin');
    await prepareAdmissions(sql, keys, log);
    log.info('policy set, AEP key and verifier key are active');
  },
  { untilMainReturns: true },
);
process.exit(code);
