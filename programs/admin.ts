import { isConnectionLost } from '#sql/db/errors';
import { runAdmin } from './admin/main.js';

// The database's driver asks something of its own whenever it connects, and nobody hears it when that
// connection is lost meanwhile. What a command asked fails by itself, and says so.
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
