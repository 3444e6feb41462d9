import { secretsConfig } from '#runtime/config';
import { runProgram } from '#runtime/process/lifecycle';
import { makeSecrets } from './secrets/make.js';

const code = await runProgram(
  'secrets',
  async ({ log }) => {
    const config = secretsConfig();
    const made = await makeSecrets(config);
    log.info({ directory: config.directory, made }, made.length > 0 ? 'made' : 'all are there');
    if (process.getuid?.() !== 0) log.warn('only root can give each file to its own program');
  },
  { untilMainReturns: true },
);
process.exit(code);
