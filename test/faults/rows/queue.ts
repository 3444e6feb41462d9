import { randomBytes } from 'node:crypto';
import { Queue } from 'bullmq';
import { setTimeout as sleep } from 'node:timers/promises';
import { fromUuid } from '#sql/db/columns';
import type { Fault, Scene } from '../fault.js';

/** Jobs of an intruder in the queue, or of a faulty queue. */
const openQueue = ({ world }: Scene, name: 'admit' | 'batch'): Queue =>
  new Queue(name, {
    connection: { host: '127.0.0.1', port: world.redis.port },
    prefix: '{svc}',
  });

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

export const QUEUE_FAULTS: Fault[] = [
  {
    name: 'queue: poisoned with garbage, a megabyte, and unknown ids',
    inject: async (scene) => {
      for (const name of ['admit', 'batch'] as const) {
        const queue = openQueue(scene, name);
        for (const [job, data] of POISON) await queue.add(job, data, { attempts: 3 });
        await queue.close();
      }
      await sleep(1_000);
      return () => undefined;
    },
  },
  {
    name: 'queue: every job delivered four times at once',
    inject: async (scene) => {
      const { sql } = scene.world.database;
      const holder = await sql.reserve();
      await holder.unsafe('begin');
      await holder.unsafe('select from svc.log_head for update');
      await sleep(700);
      const pending = await sql<{ id: string }[]>`
        select proof_id::text as id from svc.intake_pending`;
      const ids = pending.map(({ id }) => fromUuid(id));
      for (const name of ['admit', 'batch'] as const) {
        const queue = openQueue(scene, name);
        for (let time = 0; time < 4; time += 1) {
          await queue.add('admit', { ids }, { jobId: randomBytes(8).toString('hex') });
        }
        await queue.close();
      }
      await sleep(200);
      await holder.unsafe('rollback');
      holder.release();
      return () => undefined;
    },
  },
];
