#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { EXIT } from './exit-code.js';
import { main } from './main.js';
import { openTerminal } from './terminal.js';

const stopping = new AbortController();
// A second one ends the program as it always would.
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    stopping.abort();
    // Its end may be near for the same reason, and half of a document be judged for the whole.
    process.stdin.destroy();
  });
}

// Whoever reads the output may stop reading. What was not read is not known, so this is no success.
process.stdout.on('error', () => process.exit(EXIT.undecided));
// What is said there is for people; the exit code says it as well.
process.stderr.on('error', () => undefined);

const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
const { version } = JSON.parse(manifest) as { version: string };
const terminal = openTerminal(process.stdout, process.stderr);
process.exitCode = EXIT.undecided;
process.exitCode = await main(process.argv.slice(2), terminal, version, stopping.signal);
