import { copyFile, mkdir, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from './client.js';
import type { Fault, Outcome, Scene } from './fault.js';
import { walk } from './walk.js';
import { startWorld } from './world.js';

export const LOAD = {
  singlesPerSecond: 15,
  batchesPerSecond: 0.7,
  itemsPerBatch: 20,
  actsPerSecond: { revocation: 0.8, package: 0.5, token: 1, 'token end': 0.4, erasure: 0.5 },
  withDisks: true,
};

let clients = 0;

/** @param settings of its Postgres, beside what every one has */
export async function openScene(
  { withDisks, ...load } = LOAD,
  settings: Record<string, string> = {},
): Promise<Scene> {
  const world = await startWorld(withDisks, settings);
  const { engineUrls, apiKey, tenantId, eraseUrl } = world;
  clients += 1;
  const run = `client-${String(clients)}`;
  return {
    world,
    client: new Client({ engineUrls, apiKey, tenantId, eraseUrl, run, ...load }),
  };
}

/**
 * Goes through faults on several stacks side by side, since most of the time of most faults is
 * waiting. After a row that failed the stack is another one, so that each row speaks for itself.
 */
export async function inLanes(
  faults: readonly Fault[],
  lanes: number,
  say: (outcome: Outcome) => void,
): Promise<Outcome[]> {
  const outcomes = new Map<Fault, Outcome>();
  // Rows that need their own stack come last.
  const waiting = [...faults].sort((a, b) => Number(a.isLast ?? 0) - Number(b.isLast ?? 0));
  const lane = async (): Promise<void> => {
    let scene: Scene | null = null;
    const leave = async (): Promise<void> => {
      await scene?.world.close();
      scene = null;
    };
    try {
      for (let fault = waiting.shift(); fault !== undefined; fault = waiting.shift()) {
        scene ??= await openScene();
        const { disks } = scene.world;
        const outcome =
          fault.needsDisks === true && typeof disks === 'string'
            ? skipped(fault, disks)
            : await walk(scene, fault);
        outcomes.set(fault, outcome);
        say(outcome);
        if (outcome.problems.length > 0) await keepWords(scene, fault);
        if (fault.isLast === true || outcome.problems.length > 0) await leave();
      }
    } finally {
      await leave();
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return faults.flatMap((fault) => outcomes.get(fault) ?? []);
}

/** Keeps the program output around a failed row. */
async function keepWords({ world }: Scene, { name }: Fault): Promise<void> {
  const place = join(tmpdir(), 'svc-faults-failed', name.replaceAll(/[^\w]+/g, '-'));
  await mkdir(place, { recursive: true });
  for (const file of await readdir(world.dir)) {
    if (file.endsWith('.log')) await copyFile(join(world.dir, file), join(place, file));
  }
  console.log(`    what the programs said is in ${place}`);
}

function skipped({ name }: Fault, reason: string): Outcome {
  return {
    name,
    skipped: reason,
    before: 0,
    failed: 0,
    lost: 0,
    double: 0,
    answeredMs: null,
    settledMs: null,
    tookMs: 0,
    problems: [],
  };
}
