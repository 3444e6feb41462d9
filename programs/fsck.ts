import { check } from './fsck/main.js';

const stopping = new AbortController();
process.once('SIGINT', () => stopping.abort());
process.once('SIGTERM', () => stopping.abort());

// When the reader of the findings is gone, the check counts as incomplete.
process.stdout.on('error', () => process.exit(3));

const exitCode = await check(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  isTerminal: process.stderr.isTTY,
  signal: stopping.signal,
});
// Exits after the last write has succeeded or failed.
process.stdout.write('', (error) => process.exit(error ? 3 : exitCode));
