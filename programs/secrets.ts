import { secretsConfig } from '#runtime/config';
import { runProgram } from '#runtime/process/lifecycle';
import { makeSecrets } from './secrets/make.js';

const code = await runProgram(
  'secrets',
  async ({ log }) => {
    const config = secretsConfig();
    const made = await makeSecrets(config);
    log.info(
      { directory: config.secretsDir, made },
      made.length > 0 ? 'secrets created' : 'all secrets exist',
    );
    if (process.getuid?.() !== 0)
      log.warn('secrets belong to the current user: only root can assign each to its program');
  },
  { untilMainReturns: true },
);
process.exit(code);
