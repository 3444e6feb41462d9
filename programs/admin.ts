import { isConnectionLost } from '#sql/db/errors';
import { runAdmin } from './admin/main.js';

// postgres.js queries the server on each connect, and no caller handles the rejection when that
// connection is lost. The command's own query fails as well and reports it.
process.on('unhandledRejection', (error) => {
  if (!isConnectionLost(error)) throw error;
});

process.exit(
  await runAdmin(process.argv.slice(2), {
    out: (text) => process.stdout.write(text),
    err: (text) => process.stderr.write(text),
    isTerminal: process.stdout.isTTY,
  }),
);
