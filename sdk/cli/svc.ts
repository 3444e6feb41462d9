#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { EXIT, openTerminal } from './terminal.js';
import { main } from './main.js';

const words = process.argv.slice(2);
// Fails with 2 as a hook: Claude Code runs the tool after any other exit code.
const isBlocking = words[0] === 'hook' && !words.includes('--observe');
const failed = isBlocking ? EXIT.usage : EXIT.undecided;
process.exitCode = failed;

const stopping = new AbortController();
function stop(): void {
  stopping.abort();
  // Destroys the input: after a regular end of the input, half a document would look complete.
  process.stdin.destroy();
}
// `once`: a second signal ends the program in the default manner.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, stop);

let isCut = false;
// A reader that closed the pipe did not get the whole result, so the exit code is not 0. The process does
// not exit at once, because `svc mcp` still has outcomes to record.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  isCut = true;
  process.exitCode = failed;
  if (code !== 'EPIPE')
    terminal.printError(`svc: standard output cannot be written: ${code ?? ''}`);
  stop();
});
process.stderr.on('error', () => undefined);

const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
const { version } = JSON.parse(manifest) as { version: string };
const terminal = openTerminal(process.stdout, process.stderr);
const exitCode = await main(words, terminal, version, stopping.signal);
if (!isCut) process.exitCode = exitCode;
