import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { reportResults, runCommand, UsageError } from '#bench/harness/command';
import { type Answered, executeAtRate } from '#bench/harness/engine-api';
import { runScenarios } from '#bench/harness/run';
import { resultOf, UnexpectedAnswers, type Measured } from '#bench/harness/scenario';
import { OperatorError } from '#runtime/process/operator-error';
import { serveLocally } from '../fixtures/local-server.js';
import { testFolder } from '../fixtures/test-folder.js';

const dir = await testFolder();
const measured = { name: 'lookups', value: 90, unit: 'answers/s' };
const peer = { what: 'a file server', value: 100 };
const { signal } = new AbortController();

test.for<[string, Partial<Measured>, boolean | null]>([
  ['no target', {}, null],
  ['a ratio at the limit', { target: { ratio: { atLeast: 0.9 } } }, true],
  ['a ratio below the limit', { target: { ratio: { atLeast: 0.91 } } }, false],
  [
    'a value below its limit',
    { target: { ratio: { atLeast: 0.5 }, value: { atLeast: 91 } } },
    false,
  ],
  ['a value that is not a number', { value: NaN, target: { value: { atMost: 1 } } }, false],
])('resultOf > compares the value with the target: %s', ([, more, ok]) => {
  expect(resultOf({ ...measured, against: peer, ...more }).ok).toBe(ok);
});

test('runCommand > exits with 1 for a missed target or a failure and with 2 for wrong usage', async () => {
  const file = join(dir, 'results', 'quick.json');
  const met = resultOf({ ...measured, target: { value: { atLeast: 1 } } });
  const missed = resultOf({ ...measured, target: { value: { atLeast: 91 } } });
  const options = { dir, quick: true, proofs: 0, signal };
  const exitCodes = [
    () => reportResults(file, [met]),
    () => reportResults(file, [met, missed]),
    () => Promise.reject(new OperatorError('no disk')),
    () => Promise.reject(new UsageError('no number')),
    () => runScenarios([], { ...options, only: ['unknown'] }).then(() => true),
  ].map((work) => async () => {
    process.exitCode = undefined;
    await runCommand('', work);
    return process.exitCode;
  });
  const found: unknown[] = [];
  for (const run of exitCodes) found.push(await run());
  process.exitCode = undefined;
  expect(found).toEqual([undefined, 1, 1, 2, 2]);
  const written: unknown = JSON.parse(await readFile(file, 'utf8'));
  expect(written).toEqual({ node: process.version, results: [met, missed] });
});

test('executeAtRate > sends without waiting for responses, and counts latency from the due time even when it sends late', async () => {
  const answers: Answered[] = [];
  // Answers no request before the second request arrives.
  const waiting: ServerResponse[] = [];
  const server = await serveLocally((_, res) => {
    if (waiting.push(res) === 2) for (const one of waiting) one.end('{}');
  });
  const load = {
    credentials: [{ tenantId: 'acme', apiKey: 'key' }],
    perSecond: 1_000,
    count: 2,
    unexpected: new UnexpectedAnswers(),
    signal,
  };
  onTestFinished(() => server.close());
  const sending = executeAtRate(server.url, load, (answered) => void answers.push(answered));
  // Blocks the sender until long after the second request was due.
  const until = performance.now() + 100;
  while (performance.now() < until);
  await sending;
  expect(answers.map(({ ms }) => ms > 90)).toEqual([true, true]);
  expect(Math.abs(answers[0]!.due - answers[1]!.due)).toBeCloseTo(1);
});
