import { check } from './fsck/main.js';

const stopping = new AbortController();
process.once('SIGINT', () => stopping.abort());
process.once('SIGTERM', () => stopping.abort());

// When the reader of the findings is gone, the check counts as incomplete.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code !== 'EPIPE') process.stderr.write(`standard output cannot be written (${code ?? ''})\n`);
  process.exit(3);
});

const exitCode = await check(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  signal: stopping.signal,
});
// Exits after the last write has succeeded.
process.stdout.write('', (error) => {
  if (!error) process.exit(exitCode);
});
