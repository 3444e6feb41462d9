import { runAdmin } from './admin/main.js';

process.exit(
  await runAdmin(process.argv.slice(2), {
    out: (text) => process.stdout.write(text),
    err: (text) => process.stderr.write(text),
    isTerminal: process.stdout.isTTY,
  }),
);
