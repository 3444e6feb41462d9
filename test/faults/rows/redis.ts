import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault, Scene } from '../fault.js';

const queueLinks = ({ world }: Scene) => Object.values(world.queueLinks);

/** The queue is a wake-up and nothing more: it may lose all, at any time. */
export const REDIS_FAULTS: Fault[] = [
  {
    name: 'Redis killed, and restarted empty after 3 s',
    holdMs: 3_000,
    inject: async ({ world }) => {
      await world.redis.kill();
      return () => world.redis.start();
    },
  },
  {
    name: 'Redis restarted empty at once',
    inject: async ({ world }) => {
      await world.redis.kill();
      await world.redis.start();
      return () => undefined;
    },
  },
  {
    name: 'Redis flushed, ten times in 2 s',
    inject: async ({ world }) => {
      for (let time = 0; time < 10; time += 1) {
        await world.redis.client.flushall();
        await sleep(200);
      }
      return () => undefined;
    },
  },
  {
    name: 'Redis partitioned: packets dropped for 5 s',
    holdMs: 5_000,
    inject: (scene) => {
      for (const link of queueLinks(scene)) link.stall(true);
      return Promise.resolve(() => {
        for (const link of queueLinks(scene)) link.stall(false);
      });
    },
  },
  {
    name: 'Redis cut off from one of two engines for 4 s',
    holdMs: 4_000,
    inject: ({ world }) => {
      world.queueLinks['engine-1'].cut(true);
      return Promise.resolve(() => world.queueLinks['engine-1'].cut(false));
    },
  },
  {
    name: 'Redis connections reset, ten times in 2 s',
    inject: async (scene) => {
      for (let time = 0; time < 10; time += 1) {
        for (const link of queueLinks(scene)) link.breakAll('reset');
        await sleep(200);
      }
      return () => undefined;
    },
  },
  {
    name: 'Redis slow: 300 ms delay each way for 3 s',
    holdMs: 3_000,
    inject: (scene) => {
      for (const link of queueLinks(scene)) link.slow(300);
      return Promise.resolve(() => {
        for (const link of queueLinks(scene)) link.slow(0);
      });
    },
  },
  {
    name: 'Redis out of memory: every write rejected for 3 s',
    holdMs: 3_000,
    inject: async ({ world }) => {
      await world.redis.client.config('SET', 'maxmemory', '1');
      return async () => {
        await world.redis.client.config('SET', 'maxmemory', '0');
      };
    },
  },
  {
    name: 'Redis stopped (SIGSTOP) for 5 s',
    holdMs: 5_000,
    inject: ({ world }) => {
      process.kill(world.redis.pid, 'SIGSTOP');
      return Promise.resolve(() => void process.kill(world.redis.pid, 'SIGCONT'));
    },
  },
];
