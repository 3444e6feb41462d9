import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import { audit, monitorLog } from './audit.js';
import { DEVICE_FAULTS } from './devices.js';
import { NO_ACTS } from './next-acts.js';
import type { Fault, Scene } from './fault.js';
import { openScene } from './stacks.js';
import { FAULTS } from './scenarios/index.js';
import { beginFault, clearAfter, endFault } from './run-fault.js';
import { repeatActs, untilComplete } from './completion.js';
import { Random } from '../fuzz/mutate.js';
import { runEntryPoint } from './world.js';

const USAGE = `npm run test:soak -- [options]
  --minutes <n>   duration (10)
  --every <s>     seconds from one fault to the next (20)
  --seed <n>      seed of the order of the faults
  --production    the snapshot in a bucket, the keys of verifier and publisher in an HSM, two of
                  each program
  --rate <n>      single requests per second (half of the measured capacity of this machine)
  --json <file>   write the figures to a file
`;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    every: { type: 'string', default: '20' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    rate: { type: 'string' },
    production: { type: 'boolean', default: false },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

const SETTLE_MS = 5 * 60_000;
/** Batches are so frequent that they send as many items per second as the single requests. */
const ITEMS_PER_BATCH = 100;

interface Happened {
  fault: string;
  atSecond: number;
  /** Time from the end of the fault to the first success; null when there was none. */
  answeredMs: number | null;
  problems: string[];
}

const isProduction = values.production;
/** Faults that a running stack survives and that need no small disk. */
const survivable = FAULTS.filter((fault) => isProduction || !DEVICE_FAULTS.includes(fault))
  .flatMap((fault) => fault.places ?? fault)
  .filter(
    (fault) =>
      fault.isLast !== true &&
      fault.needsDisks !== true &&
      fault.mustReject === undefined &&
      !(isProduction && fault.needsDirectory === true),
  );

const AT_ONCE = 32;
const WARM_MS = 2_000;
const MEASURED_MS = 6_000;

/** Requests that this machine answers per second, with `AT_ONCE` requests at a time. */
async function calibrate(): Promise<number> {
  const scene = await openScene({
    singlesPerSecond: 0,
    batchesPerSecond: 0,
    itemsPerBatch: 1,
    actsPerSecond: NO_ACTS,
    withDisks: false,
  });
  const { client, world } = scene;
  const began = performance.now();
  let answered = 0;
  const isOver = (): boolean => performance.now() - began > WARM_MS + MEASURED_MS;
  const send = async (): Promise<void> => {
    while (!isOver()) {
      const isGood = await client.send(client.newSingle());
      if (isGood && performance.now() - began > WARM_MS) answered += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, send));
  } finally {
    await world.close();
  }
  return (answered * 1000) / MEASURED_MS;
}

async function strike(scene: Scene, fault: Fault, began: number): Promise<Happened> {
  const happened: Happened = {
    fault: fault.name,
    atSecond: Math.round((performance.now() - began) / 1000),
    answeredMs: null,
    problems: [],
  };
  try {
    happened.answeredMs = await endFault(scene, await beginFault(scene, fault));
    // Repeats acts at once, as a tenant would: an approval has no effect after 15 minutes.
    await repeatActs(scene.client);
    happened.problems.push(...((await fault.expects?.(scene)) ?? []));
  } catch (error) {
    happened.problems.push(error instanceof Error ? error.message : String(error));
  }
  happened.problems.push(...clearAfter(scene, fault));
  return happened;
}

async function main(): Promise<void> {
  if (values.help) {
    console.log(USAGE);
    return;
  }
  const seed = Number(values.seed);
  const seconds = Number(values.minutes) * 60;
  const random = new Random(seed);
  const perSecond = values.rate === undefined ? (await calibrate()) / 2 : Number(values.rate);
  console.log(`seed ${String(seed)}, ${perSecond.toFixed(0)} single requests per second`);
  const scene = await openScene({
    singlesPerSecond: perSecond,
    batchesPerSecond: perSecond / ITEMS_PER_BATCH,
    itemsPerBatch: ITEMS_PER_BATCH,
    actsPerSecond: { revocation: 2, package: 1, token: 2, 'token end': 1, erasure: 1 },
    withDisks: false,
    withDevices: isProduction,
    withReplicas: isProduction,
  });
  const { client, world } = scene;
  const began = performance.now();
  client.start();
  const happened: Happened[] = [];
  const everyMs = Number(values.every) * 1000;
  for (let next = everyMs; next < seconds * 1000; next += everyMs) {
    const wait = began + next - performance.now();
    if (wait < 0) continue;
    await sleep(wait);
    const fault = random.of(survivable);
    const one = await strike(scene, fault, began);
    happened.push(one);
    const answered = one.answeredMs === null ? 'never' : `${String(Math.round(one.answeredMs))} ms`;
    console.log(`${String(one.atSecond)} s: ${one.fault}: answered after ${answered}`);
    for (const problem of one.problems) console.log(`    ${problem}`);
  }
  await sleep(Math.max(0, began + seconds * 1000 - performance.now()));
  await client.stop();
  const stopped = performance.now();
  const unsettled = await untilComplete(world, client, client.acts.sent, SETTLE_MS);
  const settledMs = performance.now() - stopped;
  const { lost, double, wrong } = await audit(world, client, {
    requests: client.records.requests,
    acts: client.acts.sent,
  });
  const monitored = await monitorLog(world);
  const problems = [
    ...monitored,
    ...world.replicas.flatMap(({ ended }) => ended),
    ...happened.flatMap((one) => one.problems.map((problem) => `${one.fault}: ${problem}`)),
    ...unsettled,
    ...lost,
    ...double,
    ...wrong,
  ];
  const figures = {
    seed,
    minutes: Number(values.minutes),
    singles_per_second: Math.round(perSecond),
    deduplication_keys: client.records.deduplicationKeys,
    requests: client.records.requests.length,
    acts: client.acts.sent.length,
    not_acknowledged_at_once: client.failed,
    faults: happened.length,
    lost: lost.length,
    double: double.length,
    settled_after_ms: Math.round(settledMs),
    slowest_recovery_ms: Math.round(Math.max(0, ...happened.map((one) => one.answeredMs ?? 0))),
    fsck_clean: !wrong.some((problem) => problem.startsWith('fsck')),
    monitor_clean: monitored.length === 0,
    problems: problems.slice(0, 50),
    happened,
  };
  console.log(JSON.stringify({ ...figures, happened: undefined }, null, 2));
  if (values.json !== undefined) {
    writeFileSync(values.json, `${JSON.stringify(figures, null, 2)}\n`);
  }
  await world.close();
  if (problems.length > 0) process.exitCode = 1;
}

await runEntryPoint(main);
