import { setTimeout as sleep } from 'node:timers/promises';
import { inOrder } from './file.js';
import { isHealthy, launchOf, preparePostgres } from './images.js';
import { launch, runToEnd, type Running } from './process.js';
import { adoptSecrets, type World } from './world.js';

export interface Up {
  running: Running[];
  /** Every process of a service that runs. */
  of(service: string): Running[];
  /** `docker compose run --rm <service> …` */
  run(service: string, ...words: string[]): Promise<string>;
  /** `docker compose up --scale <service>=<replicas>`, waiting until all of them are ready. */
  scale(service: string, replicas: number): Promise<void>;
  /** `docker compose down`: what depends on something goes before it. Exit codes by process. */
  down(): Promise<Record<string, number | null>>;
}

const HEALTHY_MS = 40_000;
const STOP_MS = 30_000;

async function untilHealthy(world: World, running: Running): Promise<void> {
  const [name = '', replica = '1'] = running.service.split(/-(?=\d+$)/);
  const deadline = Date.now() + HEALTHY_MS;
  while (!(await isHealthy(world, name, Number(replica)))) {
    if (running.child.exitCode !== null || Date.now() > deadline) {
      throw new Error(`${running.service} does not become healthy:\n${running.output.join('')}`);
    }
    await sleep(200);
  }
}

/** `docker compose up --wait`, by hand: everything that is in no profile, in its order. */
export async function composeUp(world: World, also: string[] = []): Promise<Up> {
  const { services } = world.compose;
  const running: Running[] = [];
  const replicasOf = (name: string): number => services[name]?.deploy?.replicas ?? 1;

  const run = async (name: string, ...words: string[]): Promise<string> =>
    runToEnd(launchOf(world, name, 1, words));
  const start = (name: string, replica: number): Running => {
    const started = launch(launchOf(world, name, replica));
    running.push(started);
    return started;
  };
  const down = async (): Promise<Record<string, number | null>> => {
    const codes: Record<string, number | null> = {};
    const names = inOrder(services, Object.keys(services)).reverse();
    for (const name of names) {
      const signal = (services[name]?.stop_signal ?? 'SIGTERM') as NodeJS.Signals;
      const own = running.filter(({ service }) => service.startsWith(`${name}-`));
      await Promise.all(
        own.map(async (one) => {
          one.child.kill(name === 'postgres' ? 'SIGINT' : signal);
          const late = setTimeout(() => one.child.kill('SIGKILL'), STOP_MS);
          codes[one.service] = await one.ended;
          clearTimeout(late);
        }),
      );
    }
    return codes;
  };

  const up: Up = {
    running,
    of: (name) => running.filter(({ service }) => service.startsWith(`${name}-`)),
    run,
    scale: async (name, replicas) => {
      const added = [];
      for (let replica = up.of(name).length + 1; replica <= replicas; replica += 1) {
        added.push(start(name, replica));
      }
      await Promise.all(added.map((one) => untilHealthy(world, one)));
    },
    down,
  };
  const waits: Promise<void>[] = [];
  try {
    await run('secrets');
    adoptSecrets(world);
    await preparePostgres(world);
    const names = Object.keys(services).filter(
      (name) => services[name]?.profiles === undefined || also.includes(name),
    );
    const awaited = Object.values(services).flatMap((service) =>
      Object.entries(service.depends_on ?? {})
        .filter(([, { condition }]) => condition === 'service_healthy')
        .map(([name]) => name),
    );
    for (const name of inOrder(services, names)) {
      const isOneShot = Object.values(services).some(
        (other) => other.depends_on?.[name]?.condition === 'service_completed_successfully',
      );
      if (isOneShot) {
        await run(name);
        continue;
      }
      for (let replica = 1; replica <= replicasOf(name); replica += 1) {
        const started = start(name, replica);
        if (awaited.includes(name)) await untilHealthy(world, started);
      }
    }
    waits.push(
      ...running
        .filter(({ service }) => services[service.replace(/-\d+$/, '')]?.healthcheck !== undefined)
        .map((one) => untilHealthy(world, one)),
    );
    await Promise.all(waits);
    return up;
  } catch (error) {
    await down();
    // They end with what they ask: nobody looks any more when the folders are removed.
    await Promise.allSettled(waits);
    throw error;
  }
}
