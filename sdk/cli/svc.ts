#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { EXIT, openTerminal } from './terminal.js';
import { main } from './main.js';

const stopping = new AbortController();
// `once`: a second signal ends the program in the default manner.
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    stopping.abort();
    // Destroyed: an ordinary end of standard input would make half a document look complete.
    process.stdin.destroy();
  });
}

// A reader that closed the pipe did not get the whole result, so the run is not a success.
process.stdout.on('error', () => process.exit(EXIT.undecided));
process.stderr.on('error', () => undefined);

const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
const { version } = JSON.parse(manifest) as { version: string };
const terminal = openTerminal(process.stdout, process.stderr);
process.exitCode = EXIT.undecided;
process.exitCode = await main(process.argv.slice(2), terminal, version, stopping.signal);
