import { randomInt } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { fuzz, type TargetReport } from './run.js';
import { TARGETS } from './targets.js';

const USAGE = `npm run fuzz -- [--seconds <n, 60>] [--target <name>] [--seed <n>]
  Divides the seconds among the targets: half with a fixed seed, half with a random one.
  targets: ${TARGETS.map(({ name }) => name).join(', ')}`;

/** Each run uses these inputs, so that runs can be compared. */
const FIXED_SEED = 1;
const FINDINGS = join('.data', 'fuzz');

const { values: given } = parseArgs({
  options: { seconds: { type: 'string' }, target: { type: 'string' }, seed: { type: 'string' } },
});
const seconds = Number(given.seconds ?? 60);
const targets = TARGETS.filter(({ name }) => given.target === undefined || name === given.target);

if (!(seconds > 0) || targets.length === 0) {
  console.error(USAGE);
  process.exitCode = 2;
} else {
  const random = given.seed === undefined ? randomInt(2, 2 ** 32) : Number(given.seed);
  console.log(`seeds: ${String(FIXED_SEED)} and ${String(random)}`);
  const milliseconds = (seconds * 1000) / targets.length / 2;
  let failed = 0;
  let executions = 0;
  for (const target of targets) {
    const reports = [FIXED_SEED, random].map((seed) =>
      fuzz(target, seed, { milliseconds, executions: Infinity }),
    );
    for (const report of reports) print(report);
    executions += reports.reduce((sum, report) => sum + report.executions, 0);
    if (reports.some(({ findings }) => findings.length > 0)) failed += 1;
  }
  console.log(`${String(executions)} inputs`);
  console.log(`${String(targets.length - failed)} targets passed, ${String(failed)} failed`);
  if (failed > 0) process.exitCode = 1;
}

function print(report: TargetReport): void {
  const { name, executions, accepted, outcomes, slowestMs, slowestBytes, findings } = report;
  console.log(
    `${name.padEnd(20)} ${String(executions).padStart(9)} inputs, ${String(accepted).padStart(8)} accepted, ` +
      `${String(outcomes.size).padStart(3)} outcomes, slowest ${slowestMs.toFixed(0)} ms (${String(slowestBytes)} bytes), ` +
      `${String(findings.length)} findings`,
  );
  for (const [i, { error, input }] of findings.entries()) {
    mkdirSync(FINDINGS, { recursive: true });
    const file = join(FINDINGS, `${name}-${String(i)}`);
    writeFileSync(file, input);
    console.error(
      error,
      `\n  input: ${file}`,
      JSON.stringify(Buffer.from(input).toString('latin1').slice(0, 400)),
    );
  }
}
