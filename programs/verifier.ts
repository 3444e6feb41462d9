import { verifierConfig } from '#runtime/config';
import { reportReady, runProgram } from '#runtime/lifecycle';
import { connect } from '#runtime/postgres';
import { isConnectionLost } from '#sql/errors';
import { assertRole } from '#sql/roles';
import { runVerifier } from '#workers/verify/verifier';

const code = await runProgram('verifier', async (program) => {
  const { log, signal } = program;
  const config = verifierConfig();
  program.survives(isConnectionLost);
  const sql = connect(config.databaseUrl, { application: 'svc-verifier', max: 2 });
  program.onStop(() => sql.end({ timeout: 5 }));
  await assertRole(sql, 'verifier');
  const running = runVerifier({ sql, log }, signal);
  program.onStop(() => running);
  reportReady();
});
process.exit(code);
