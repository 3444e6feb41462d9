import { randomBytes } from 'node:crypto';
import { Queue } from 'bullmq';
import { setTimeout as sleep } from 'node:timers/promises';
import { fromUuid } from '#sql/db/columns';
import { lasting, onLinks, type Fault, type Scene } from '../fault.js';
import type { World } from '../world.js';

function redisOf({ world: { redis } }: Scene) {
  if (redis === null) throw new Error('this stack has no Redis of its own');
  return redis;
}

const allLinks = ({ queueLinks }: World) => Object.values(queueLinks);

/** The queue only wakes workers: it may lose everything, at any time. */
export const REDIS_FAULTS: Fault[] = [
  lasting(
    'Redis killed, and later restarted empty',
    3_000,
    (scene) => redisOf(scene).kill(),
    (scene) => redisOf(scene).start(),
    { kind: 'Redis down' },
  ),
  {
    name: 'Redis flushed, ten times in 2 s, while no worker takes jobs',
    kind: 'queue emptied',
    inject: async (scene) => {
      const pause = () => inQueues(scene, (queue) => queue.pause());
      await pause();
      // A revocation has a job that Redis can lose; a single admission has none.
      const revoked = scene.client.acts.sendNew('revocation');
      for (let time = 0; time < 10; time += 1) {
        if (time > 0) await pause();
        await sleep(200);
        // FLUSHALL also resumes the queues.
        await redisOf(scene).client.flushall();
      }
      return () => revoked;
    },
  },
  onLinks(
    'Redis partitioned: packets dropped',
    5_000,
    allLinks,
    (link, isFaulty) => link.stall(isFaulty),
    'Redis down',
  ),
  onLinks(
    'Redis cut off from one of two engines',
    4_000,
    ({ queueLinks }) => [queueLinks['engine-1']],
    (link, isFaulty) => link.cut(isFaulty),
    'Redis cut off from an engine',
  ),
  onLinks(
    'Redis slow: 300 ms delay each way',
    3_000,
    allLinks,
    (link, isFaulty) => link.slow(isFaulty ? 300 : 0),
    'Redis slow',
  ),
  lasting(
    'Redis out of memory: every write rejected',
    3_000,
    (scene) => redisOf(scene).client.config('SET', 'maxmemory', '1'),
    (scene) => redisOf(scene).client.config('SET', 'maxmemory', '0'),
    { kind: 'Redis out of memory' },
  ),
  lasting(
    'Redis stopped (SIGSTOP)',
    5_000,
    (scene) => process.kill(redisOf(scene).pid, 'SIGSTOP'),
    (scene) => process.kill(redisOf(scene).pid, 'SIGCONT'),
    { kind: 'Redis down' },
  ),
  {
    name: 'queue: poisoned with garbage, a megabyte, and unknown ids',
    kind: 'queue abused',
    inject: async (scene) => {
      await inQueues(scene, async (queue) => {
        for (const [job, data] of POISON) await queue.add(job, data, { attempts: 3 });
      });
      await sleep(1_000);
    },
  },
  {
    name: 'queue: every job delivered four times at once',
    kind: 'queue abused',
    inject: async (scene) => {
      const { database } = scene.world;
      const release = await database.holdAppendLock();
      await sleep(700);
      const pending = await database.sql<{ id: string }[]>`
        select proof_id::text as id from svc.intake_pending
        union all select chunk_id::text from svc.chunk_pending`;
      const ids = pending.map(({ id }) => fromUuid(id));
      await inQueues(scene, async (queue) => {
        for (let time = 0; time < 4; time += 1) {
          await queue.add('admit', { ids }, { jobId: randomBytes(8).toString('hex') });
        }
      });
      await sleep(200);
      await release();
    },
  },
];

/** Jobs from an intruder or a faulty queue. */
const POISON: [name: string, data: unknown][] = [
  ['admit', {}],
  ['admit', 'garbage'],
  ['admit', { ids: 'everything' }],
  ['admit', { ids: [{ $ne: null }, 7, null] }],
  ['admit', { ids: ['0'.repeat(32), 'f'.repeat(32)] }],
  ['admit', { ids: ['x'.repeat(1_000_000)] }],
  ['admit', { ids: Array.from({ length: 30_000 }, () => '1'.repeat(32)) }],
  ['revoke', { ids: ['0'.repeat(32)] }],
  ['batches', { ids: ['0'.repeat(32)] }],
  ['toString', { ids: [] }],
];

async function inQueues(scene: Scene, add: (queue: Queue) => Promise<void>): Promise<void> {
  for (const name of ['admit', 'batch'] as const) {
    const connection = { host: '127.0.0.1', port: redisOf(scene).port };
    const queue = new Queue(name, { connection, prefix: '{svc}' });
    await add(queue);
    await queue.close();
  }
}
