import { copyFile, mkdir, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from './client.js';
import { DEVICE_FAULTS, lacksDevices } from './devices.js';
import { newOutcome, type Fault, type Outcome, type Scene } from './fault.js';
import { runFault } from './run-fault.js';
import { Observation } from './observation.js';
import { startWorld, type WorldOptions } from './world.js';

export const LOAD = {
  singlesPerSecond: 8,
  batchesPerSecond: 0.4,
  itemsPerBatch: 20,
  actsPerSecond: { revocation: 0.8, package: 0.5, token: 1, 'token end': 0.4, erasure: 0.5 },
  withDisks: true,
};

/**
 * Ignored alerts: the snapshot's disk is smaller than the alert's threshold, and nothing measures the
 * host's disks.
 */
const OTHER_DISKS = ['SvcSnapshotDisk', 'SvcDisk'];
/**
 * Range of alert expressions: short enough that a fault of seconds triggers an alert, and that the alert
 * ends before the next scenario.
 */
const RANGE = '10s';

let clients = 0;

export async function openScene(options: typeof LOAD & WorldOptions = LOAD): Promise<Scene> {
  const world = await startWorld(options);
  const { engineUrls, apiKey, tenantId, eraseUrl } = world;
  clients += 1;
  const run = `client-${String(clients)}`;
  return { world, client: new Client({ ...options, engineUrls, apiKey, tenantId, eraseUrl, run }) };
}

/** The audit of a scenario checks the whole log, so each request on a stack makes later scenarios slower. */
const REQUESTS_PER_STACK = 500;

/**
 * Runs faults on several stacks concurrently, because a fault scenario mostly waits. A stack with a failed
 * scenario is replaced, so that it cannot affect the next scenario.
 */
export async function runFaults(
  faults: readonly Fault[],
  count: number,
  print: (outcome: Outcome) => void,
): Promise<Outcome[]> {
  const ofDevices = faults.filter((fault) => DEVICE_FAULTS.includes(fault));
  const outcomes = new Map<Fault, Outcome>();
  // Scenarios after which the stack is replaced run last. Of the others, the longest run first, so that
  // the concurrent stacks finish at about the same time.
  const others = faults
    .filter((fault) => !DEVICE_FAULTS.includes(fault))
    .sort(
      (a, b) =>
        Number(a.isLast ?? 0) - Number(b.isLast ?? 0) || (b.injectMs ?? 0) - (a.injectMs ?? 0),
    );
  const runOnStack = async (
    waiting: Fault[],
    options: typeof LOAD & WorldOptions,
  ): Promise<void> => {
    let scene: Scene | null = null;
    let observation: Observation | null = null;
    const closeScene = async (): Promise<void> => {
      await observation?.close();
      await scene?.world.close();
      scene = observation = null;
    };
    try {
      for (let fault = waiting.shift(); fault !== undefined; fault = waiting.shift()) {
        if (options.withDevices === true && lacksDevices !== null) {
          outcomes.set(fault, { ...newOutcome(fault.name), skipped: lacksDevices });
          continue;
        }
        scene ??= await openScene(options);
        observation ??= await Observation.open(scene.world, { except: OTHER_DISKS, range: RANGE });
        const { disks } = scene.world;
        const outcome =
          fault.needsDisks === true && typeof disks === 'string'
            ? { ...newOutcome(fault.name), skipped: disks }
            : await runFault(scene, fault, observation);
        outcomes.set(fault, outcome);
        print(outcome);
        if (outcome.problems.length > 0) await keepLogs(scene, fault);
        const { length } = scene.client.records.requests;
        const isUsedUp = fault.isLast === true || length > REQUESTS_PER_STACK;
        if (isUsedUp || outcome.problems.length > 0) await closeScene();
      }
    } finally {
      await closeScene();
    }
  };
  const runLane = async (_: unknown, lane: number): Promise<void> => {
    // Only one stack at a time has devices: the environment, which all stacks share, names the devices.
    if (lane === 0) await runOnStack(ofDevices, { ...LOAD, withDisks: false, withDevices: true });
    await runOnStack(others, LOAD);
  };
  await Promise.all(Array.from({ length: count }, runLane));
  return faults.flatMap((fault) => outcomes.get(fault) ?? []);
}

/** Keeps the output of the programs when a scenario failed. */
async function keepLogs({ world }: Scene, { name }: Fault): Promise<void> {
  const place = join(tmpdir(), 'svc-faults-failed', name.replaceAll(/[^\w]+/g, '-'));
  await mkdir(place, { recursive: true });
  for (const file of await readdir(world.dir)) {
    if (file.endsWith('.log')) await copyFile(join(world.dir, file), join(place, file));
  }
  console.log(`    logs of the programs: ${place}`);
}
