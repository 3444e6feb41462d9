import { setTimeout as sleep } from 'node:timers/promises';
import { atPlaces, lasting, type Fault } from '../fault.js';
import type { Trap } from '../../fixtures/tcp-proxy.js';
import { APPENDS_PROOFS } from './write-points.js';
import { commitOf } from './writes.js';

const WORKERS = ['worker-1', 'worker-2'] as const;
const runs =
  (statement: string): Trap['matches'] =>
  (sql) =>
    sql.includes(statement);

/** Kills whichever worker first reaches a point of its job. */
const killedAt = (when: string, matches: Trap['matches'], breaks: Trap['breaks']): Fault => ({
  name: `worker killed ${when}`,
  inject: async ({ world }) => {
    await Promise.race(
      WORKERS.map((name) => {
        const then = (): void => world.programs[name].signal('SIGKILL');
        return world.links[name].set({ matches, breaks, then });
      }),
    );
    for (const name of WORKERS) world.links[name].clear();
  },
});

const LOADS = runs('as packed from (');
const LOCKS = runs('svc.log_head for update');
const COMMITS = commitOf(APPENDS_PROOFS);

const KILLED: Fault[] = [
  killedAt('before it loads its job', LOADS, 'unsent'),
  killedAt('after it signed, before it takes the append lock', LOCKS, 'unsent'),
  killedAt('while it holds the append lock', LOCKS, 'unanswered'),
  killedAt('after its last write, before the commit', COMMITS, 'unsent'),
  killedAt('after its commit, before the answer arrives', COMMITS, 'unanswered'),
  {
    name: 'worker killed after its commit, before its job is acknowledged',
    inject: async ({ world }) => {
      const state = { hasHealed: false };
      await Promise.race(
        WORKERS.map(async (name) => {
          // The worker that survives may commit after the fault has ended.
          const then = (): void => {
            if (!state.hasHealed) world.queueLinks[name].stall(true);
          };
          await world.links[name].set({ matches: COMMITS, breaks: 'answered', then });
          if (state.hasHealed) return;
          // The worker has committed and cannot acknowledge the job.
          await sleep(100);
          world.programs[name].signal('SIGKILL');
        }),
      );
      return () => {
        state.hasHealed = true;
        for (const link of Object.values(world.queueLinks)) link.stall(false);
      };
    },
  },
];

export const WORKER_FAULTS: Fault[] = [
  atPlaces('worker killed at each point of its job', KILLED, { kind: 'worker killed' }),
  lasting(
    'both workers killed and not restarted',
    1_000,
    ({ world }) => WORKERS.forEach((name) => world.programs[name].keepDown()),
    ({ world }) => WORKERS.forEach((name) => world.programs[name].allowRestart()),
    { kind: 'workers down' },
  ),
  lasting(
    'worker stopped (SIGSTOP) while it holds the append lock',
    // Longer than an engine waits for a decision (`waitMs`), so that requests fail.
    11_000,
    ({ world }) => {
      const then = (): void => world.programs['worker-1'].signal('SIGSTOP');
      return world.links['worker-1'].set({ matches: LOCKS, breaks: 'answered', then });
    },
    ({ world }) => world.programs['worker-1'].signal('SIGCONT'),
    { kind: 'worker-1 stopped', mustFail: true },
  ),
];
