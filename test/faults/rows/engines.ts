import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault, Scene } from '../fault.js';
import { until } from '../pace.js';
import { batchResults } from '../settle.js';

/** As long as the other has to do everything by itself. */
const GONE_MS = 3_000;
const ANSWERED_MS = 8_000;

/** Problems while one engine was down. */
const missed: string[] = [];

export const ENGINE_FAULTS: Fault[] = [
  {
    name: 'one of two engines killed: the other one answers',
    isFelt: true,
    inject: async (scene) => {
      missed.length = 0;
      const engine = scene.world.programs['engine-1'];
      const { batch, single } = await askOne(scene);
      const before = scene.client.failedAt[1] ?? 0;
      engine.hold();
      await sleep(GONE_MS);
      missed.push(...(await requireAnswers(scene, batch, single)));
      single.open -= 1;
      const failed = (scene.client.failedAt[1] ?? 0) - before;
      if (failed > 0) missed.push(`the other failed ${String(failed)} times meanwhile`);
      return () => engine.letGo();
    },
    expects: () => Promise.resolve(missed.splice(0)),
  },
];

/** A batch and an execution that the first engine acknowledged: one is not done, and one is. */
async function askOne({ client }: Scene) {
  const batch = client.newBatch(200);
  const single = client.newSingle();
  // Sent again below: after an erasure it would be another admission.
  single.open += 1;
  for (const one of [batch, single]) {
    const isTaken = await until(() => {
      one.n = one.attempts = 0;
      return client.send(one);
    }, ANSWERED_MS);
    if (!isTaken) missed.push('the first engine did not acknowledge the admission');
  }
  return { batch, single };
}

async function requireAnswers(
  { client }: Scene,
  ...[batch, single]: [
    Awaited<ReturnType<typeof askOne>>['batch'],
    Awaited<ReturnType<typeof askOne>>['single'],
  ]
): Promise<string[]> {
  const found: string[] = [];
  // Both were sent once, so it is the other engine's turn; and its again, and so on.
  const turn = (one: { attempts: number }): void => void (one.attempts = 1);
  const isDone = await until(async () => {
    turn(batch);
    return (await batchResults(client, batch).catch(() => null)) !== null;
  }, ANSWERED_MS);
  if (!isDone) found.push('the other engine does not tell the results of its batch');
  turn(single);
  if (!(await client.send(single))) found.push('the other engine has no receipt for it');
  turn(batch);
  if (!(await client.send(batch))) found.push('the other engine does not know its batch');
  return found;
}
