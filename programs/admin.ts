import { runAdmin } from './admin/main.js';

// A reader that closes the pipe early, such as `head`, has not received the whole output.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code !== 'EPIPE') {
    const advice =
      'the command may have taken effect: look for it with "npm run admin -- audit list"';
    process.stderr.write(`standard output cannot be written (${code ?? ''}); ${advice}\n`);
  }
  process.exit(1);
});

const exitCode = await runAdmin(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  isTerminal: process.stdout.isTTY,
});
// Exits after the last write has succeeded.
process.stdout.write('', (error) => {
  if (!error) process.exit(exitCode);
});
