import { runAdmin } from './admin/main.js';

// A reader that closes the pipe early, such as `head`, has not received the whole output.
process.stdout.on('error', () => process.exit(1));

const exitCode = await runAdmin(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  isTerminal: process.stdout.isTTY,
});
// Exits after the last write has succeeded or failed.
process.stdout.write('', (error) => process.exit(error ? 1 : exitCode));
