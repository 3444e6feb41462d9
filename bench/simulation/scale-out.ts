import { readFile } from 'node:fs/promises';
import { Console } from 'node:console';
import { print, resultsFile } from '../harness/command.js';
import type { Result } from '../harness/scenario.js';
import { whole } from '../harness/statistics.js';
import { limitOf, measuredCosts, placeTenants, simulate, type Setup } from './pipeline.js';

/** Prints the table of docs/scale-out.md, from the costs of the last complete bench. */

const { results } = JSON.parse(await readFile(resultsFile('latest'), 'utf8')) as {
  results: Result[];
};
const costs = measuredCosts(results);
const one: Setup = {
  costs,
  shares: [1],
  publishing: 'each',
  checkers: 1,
  workers: 4,
  verdicts: 'at each cycle',
};
const equal = (logs: number): number[] => Array<number>(logs).fill(1 / logs);
const zipf = Array.from({ length: 1_000 }, (_, rank) => 1 / (rank + 1));
const halfByOne = [999, ...Array<number>(999).fill(1)];

print(`µs per proof: ${JSON.stringify(costs)}`);
printComparison();

const table = new Map<string, object>();
for (const checkers of [1, 2, 3, 4, 8]) add(`1 log, threads ${String(checkers)}`, { checkers });
add('1 log, threads 1, verdicts between cycles', { verdicts: 'between cycles' });
for (const logs of [2, 4, 8]) {
  for (const publishing of ['each', 'one', 'joined'] as const) {
    add(`${String(logs)} logs, publisher ${publishing}`, { shares: equal(logs), publishing });
  }
}
for (const publishing of ['each', 'joined'] as const) {
  const more = { shares: equal(8), publishing, checkers: 4 };
  add(`8 logs, threads 4, publisher ${publishing}`, more);
}
for (const checkers of [1, 4]) {
  const threads = `threads ${String(checkers)}`;
  add(`8 logs, ${threads}, one tenant with half`, { checkers, shares: placeTenants(halfByOne, 8) });
  add(`8 logs, ${threads}, Zipf`, { checkers, shares: placeTenants(zipf, 8) });
}
new Console(process.stdout).table(Object.fromEntries(table));

function add(name: string, more: Partial<Setup>): void {
  const setup = { ...one, ...more };
  const limit = limitOf(setup);
  const { p50, p99 } = simulate(setup, 0.8 * limit);
  const { busiest } = simulate(setup, limit);
  table.set(name, {
    'proofs/s': whole(Number(limit.toPrecision(3))),
    'first limit': busiest.name,
    'p50 s at 80 %': p50.toFixed(1),
    'p99 s': p99.toFixed(1),
  });
}

/** Prints the model of today's programs on two cores next to the measured figures. */
function printComparison(): void {
  const today: Setup = { ...one, workers: 1, verdicts: 'rows', cores: 2 };
  const measured = (name: string): number =>
    results.find((result) => result.name === name)?.value ?? NaN;
  const rate = measured('batch admission');
  const { p50, p99 } = simulate(today, rate / 2);
  const seconds = (value: number): string => `${value.toFixed(2)} s`;
  print(`model, measured: ${whole(limitOf(today))}, ${whole(rate)} proofs/s on two cores; at half of the measured rate, from
receipt to public verdict: p50 ${seconds(p50)}, ${seconds(measured('freshness: receipt to public verdict, p50'))}, p99 ${seconds(p99)}, ${seconds(measured('freshness: receipt to public verdict, p99'))}`);
}
