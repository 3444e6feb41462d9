import { rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { builtFile } from '#bench/harness/child';
import { lasting, requireDisks, type Fault, type Scene } from '../fault.js';
import type { Batch, Single } from '../records.js';
import { until } from '../pace.js';
import { batchResults } from '../completion.js';

const killed = (
  name: 'engine-1' | 'verifier' | 'facade' | 'publisher',
  more: Partial<Fault> = {},
): Fault =>
  lasting(
    `${name} killed twice in 2 s, and then not restarted`,
    1_000,
    async ({ world }) => {
      const program = world.programs[name];
      for (let time = 0; time < 2; time += 1) {
        program.signal('SIGKILL');
        await sleep(1_000);
      }
      program.keepDown();
    },
    ({ world }) => world.programs[name].allowRestart(),
    { kind: `${name} down`, ...more },
  );

const stopped = (name: 'engine-1' | 'verifier' | 'publisher'): Fault =>
  lasting(
    `${name} stopped (SIGSTOP)`,
    10_000,
    ({ world }) => world.programs[name].signal('SIGSTOP'),
    ({ world }) => world.programs[name].signal('SIGCONT'),
    { kind: `${name} stopped` },
  );

const HOUR_MS = 60 * 60_000;
const CLOCK_MS = 3_000;

const CLOCKS = ['engine-1', 'worker-1', 'verifier', 'publisher', 'facade'] as const;

const jumping = (name: (typeof CLOCKS)[number]): Fault => ({
  name: `clock of ${name} an hour behind, then an hour ahead`,
  kind: `${name} clock`,
  // The table extends this time until operators see the skew, which programs measure every 5 s.
  holdMs: CLOCK_MS,
  inject: async ({ world }) => {
    const file = join(world.dir, `${name}.clock`);
    const preload = builtFile('test/faults/shifted-clock');
    await world.programs[name].restartWith(['--import', preload], { CLOCK_SHIFT_FILE: file });
    await writeFile(file, String(-HOUR_MS));
    await sleep(CLOCK_MS);
    await writeFile(file, String(HOUR_MS));
    return () => rm(file);
  },
});

const startSecondPublisher = async ({ world }: Scene, leadsAfterMs: number): Promise<void> => {
  await world.startAnother('publisher').ready();
  await sleep(leadsAfterMs);
};
const stopSecondPublisher = { expects: ({ world }: Scene) => world.stopAdded() };

export const PROCESS_FAULTS: Fault[] = [
  oneEngineKilled(),
  killed('engine-1', { mustFail: true }),
  killed('verifier'),
  killed('facade'),
  killed('publisher'),
  stopped('engine-1'),
  stopped('verifier'),
  stopped('publisher'),
  {
    name: 'engine killed while it receives a batch',
    kind: 'engine-1 killed',
    mustFail: true,
    inject: async ({ world, client }) => {
      const batch = client.newBatch(500);
      const half = batch.body.length / 2;
      const sending = request(`${world.engineUrls[0] ?? ''}/v1/batches`, {
        method: 'POST',
        headers: { ...client.headers, 'Content-Type': 'application/x-ndjson' },
      });
      // The client repeats the whole batch later, as it repeats all unacknowledged requests.
      sending.on('error', () => undefined);
      sending.write(batch.body.slice(0, half));
      await sleep(300);
      world.programs['engine-1'].signal('SIGKILL');
      sending.end(batch.body.slice(half));
    },
  },
  {
    name: 'two publishers, the leader killed',
    kind: 'publisher killed once',
    holdMs: 1_000,
    inject: async (scene) => {
      const { publisher } = scene.world.programs;
      await startSecondPublisher(scene, 2_500);
      publisher.keepDown();
      await sleep(1_000);
      publisher.allowRestart();
    },
    ...stopSecondPublisher,
  },
  lasting(
    'two publishers, the leader stopped (SIGSTOP)',
    10_000,
    async (scene) => {
      await startSecondPublisher(scene, 1_500);
      scene.world.programs.publisher.signal('SIGSTOP');
    },
    ({ world }) => world.programs.publisher.signal('SIGCONT'),
    { kind: 'publisher stopped', ...stopSecondPublisher },
  ),
  lasting(
    'snapshot directory out of disk',
    5_000,
    (scene) => requireDisks(scene).snapshot.fill(),
    (scene) => requireDisks(scene).snapshot.empty(),
    { kind: 'snapshot disk full', needsDisks: true },
  ),
  lasting(
    'snapshot directory read-only',
    5_000,
    async (scene) => {
      const { snapshot } = requireDisks(scene);
      // The remount fails while a file is being written.
      const remount = () => snapshot.setReadOnly(true).then(() => true);
      const isDone = await until(() => remount().catch(() => false), 8_000, 20);
      if (!isDone) throw new Error('the snapshot directory could not be made read-only');
    },
    (scene) => requireDisks(scene).snapshot.setReadOnly(false),
    { kind: 'snapshot disk read-only', needsDisks: true },
  ),
];

export const CLOCK_FAULTS: Fault[] = CLOCKS.map(jumping);

const ANSWERED_MS = 8_000;

function oneEngineKilled(): Fault {
  let problems: string[] = [];
  return {
    name: 'one of two engines killed: the other one answers',
    kind: 'engine-1 down',
    mustFail: true,
    holdMs: 0,
    inject: async (scene) => {
      problems = [];
      const { client, world } = scene;
      const [batch, single] = [client.newBatch(200), client.newSingle()];
      // Excludes the request from erasures, after which a repeated body would be a new admission.
      single.open += 1;
      for (const one of [batch, single]) {
        const isAccepted = await until(() => {
          one.n = one.attempts = 0;
          return client.send(one);
        }, ANSWERED_MS);
        if (!isAccepted) problems.push('the first engine did not acknowledge the admission');
      }
      const before = client.failedAt[1] ?? 0;
      world.programs['engine-1'].keepDown();
      await sleep(3_000);
      problems.push(...(await missingAnswers(scene, batch, single)));
      single.open -= 1;
      const failed = (client.failedAt[1] ?? 0) - before;
      if (failed > 0) problems.push(`the other engine failed ${String(failed)} times meanwhile`);
      return () => world.programs['engine-1'].allowRestart();
    },
    expects: () => Promise.resolve(problems),
  };
}

/** Requests that the first engine acknowledged, and for which the second engine has no answer. */
async function missingAnswers({ client }: Scene, batch: Batch, single: Single): Promise<string[]> {
  const found: string[] = [];
  // The next attempt goes to the second engine.
  const isDone = await until(async () => {
    batch.attempts = 1;
    return (await batchResults(client, batch).catch(() => null)) !== null;
  }, ANSWERED_MS);
  if (!isDone) found.push('the other engine does not return the results of the batch');
  batch.attempts = single.attempts = 1;
  if (!(await client.send(single))) found.push('the other engine does not return the receipt');
  if (!(await client.send(batch))) found.push('the other engine does not know the batch');
  return found;
}
