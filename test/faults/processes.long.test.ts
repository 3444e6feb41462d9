import { afterAll, beforeAll, expect, it } from 'vitest';
import { untilWaiting } from '../fixtures/hold-lock.js';
import { eventually } from '../fixtures/stack.js';
import { NO_ACTS } from './next-acts.js';
import { lasting, type Fault, type Scene } from './fault.js';
import { FAULTS } from './scenarios/index.js';
import { commitOf } from './scenarios/writes.js';
import { runFault } from './run-fault.js';
import { LOAD, openScene } from './stacks.js';

/**
 * The queue is in PostgreSQL, and the batch is large. In the fault table (npm run test:faults) the
 * queue is in Redis, and batches are small.
 */
let scene: Scene;
beforeAll(async () => {
  scene = await openScene({ ...LOAD, actsPerSecond: NO_ACTS, withDisks: false, redisUrl: null });
}, 60_000);
afterAll(() => scene.world.close());

function rowNamed(name: string): Fault {
  const row = FAULTS.flatMap((one) => one.places ?? one).find((one) => one.name === name);
  if (row === undefined) throw new Error(`no fault is named ${name}`);
  return row;
}

const postgresKilled = lasting(
  'Postgres killed while a worker waits to append signed proofs',
  500,
  async ({ world: { database } }) => {
    // The server closes the connection that holds the lock, which releases the lock.
    await database.holdAppendLock();
    await untilWaiting(database.sql, 1, 'svc-worker%');
    database.signal('SIGKILL');
    await database.running.exited;
  },
  ({ world }) => world.database.restart(),
);

const engineKilled = (when: string, breaks: 'unsent' | 'unanswered'): Fault => ({
  name: `engine killed ${when} the commit of a batch`,
  inject: async ({ world, client }) => {
    const then = (): void => world.programs['engine-1'].signal('SIGKILL');
    const matches = commitOf('insert into svc.batch_progress ');
    const killed = world.links['engine-1'].set({ matches, breaks, then });
    const batch = client.newBatch(600);
    // The client sends the first attempt of this request to the first engine.
    batch.n = 0;
    await client.send(batch);
    await killed;
  },
});

const largestBatch: Fault = {
  name: 'batch of the largest size, its workers killed twice',
  injectMs: 60_000,
  recoverMs: 90_000,
  inject: async ({ world, client }) => {
    await client.sendUntilAcknowledged(client.newBatch(10_000));
    for (const least of [1, 1_000]) {
      const pending = await eventually(
        async () => {
          const [row] = await world.database.sql<{ pending: number }[]>`
            select pending from svc.batch_progress
            where awaited = 10000 and awaited - pending >= ${least}`;
          return row?.pending ?? null;
        },
        30_000,
        `${String(least)} decided items`,
      );
      if (pending === 0) throw new Error('the batch was completed before the workers were killed');
      for (const name of ['worker-1', 'worker-2'] as const) world.programs[name].signal('SIGKILL');
    }
  },
};

it.each([
  rowNamed('worker killed after it signed, before it takes the append lock'),
  rowNamed('Postgres ends every connection, ten times in 2 s'),
  rowNamed('engine killed while it receives a batch'),
  postgresKilled,
  engineKilled('before', 'unsent'),
  engineKilled('after', 'unanswered'),
  largestBatch,
])(
  'requests acknowledged through a queue in PostgreSQL are neither lost nor duplicated > $name',
  async (fault) => {
    expect((await runFault(scene, fault)).problems).toEqual([]);
  },
  240_000,
);
