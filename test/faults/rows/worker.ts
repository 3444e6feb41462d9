import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from '../fault.js';
import type { Trap } from '../link.js';
import { commitOf } from './writes.js';

const runs =
  (statement: string): Trap['matches'] =>
  (sql) =>
    sql.includes(statement);

/** From one to the next: what a worker has done for its job when it dies. */
const STEPS: [when: string, trap: Pick<Trap, 'matches' | 'breaks'>][] = [
  [
    'before it loads its job',
    { matches: runs('from svc.intake_pending p join svc.intake i'), breaks: 'unsent' },
  ],
  [
    'signed, before the append lock',
    { matches: runs('svc.log_head for update'), breaks: 'unsent' },
  ],
  ['with the append lock', { matches: runs('svc.log_head for update'), breaks: 'unanswered' }],
  [
    'pending admissions claimed',
    { matches: runs('delete from svc.intake_pending'), breaks: 'unanswered' },
  ],
  ['proofs written', { matches: runs('insert into svc.proof '), breaks: 'unanswered' }],
  ['log entries written', { matches: runs('insert into svc.log_entry '), breaks: 'unanswered' }],
  [
    'everything written, before the commit',
    { matches: commitOf('insert into svc.proof '), breaks: 'unsent' },
  ],
  [
    'committed, before the answer arrives',
    { matches: commitOf('insert into svc.proof '), breaks: 'unanswered' },
  ],
];

const killedAt = ([when, trap]: (typeof STEPS)[number]): Fault => ({
  name: `worker killed: ${when}`,
  inject: async ({ world }) => {
    // Whichever gets there first.
    const either = (['worker-1', 'worker-2'] as const).map((name) =>
      world.links[name].set({ ...trap, then: () => world.programs[name].signal('SIGKILL') }),
    );
    await Promise.race(either);
    world.links['worker-1'].clear();
    world.links['worker-2'].clear();
    return () => undefined;
  },
});

export const WORKER_FAULTS: Fault[] = [
  ...STEPS.map(killedAt),
  {
    name: 'worker killed: committed, before its job is acknowledged',
    inject: async ({ world }) => {
      const state = { isOver: false };
      const either = (['worker-1', 'worker-2'] as const).map(async (name) => {
        await world.links[name].set({
          matches: commitOf('insert into svc.proof '),
          breaks: 'answered',
          then: () => {
            // The other's may spring when this one is over.
            if (!state.isOver) world.queueLinks[name].stall(true);
          },
        });
        if (state.isOver) return;
        // The worker knows the commit, but cannot acknowledge the job.
        await sleep(100);
        world.programs[name].signal('SIGKILL');
      });
      await Promise.race(either);
      return () => {
        state.isOver = true;
        for (const link of Object.values(world.queueLinks)) link.stall(false);
      };
    },
  },
  {
    name: 'both workers killed, five times in 2 s',
    inject: async ({ world }) => {
      for (let time = 0; time < 5; time += 1) {
        world.programs['worker-1'].signal('SIGKILL');
        world.programs['worker-2'].signal('SIGKILL');
        await sleep(400);
      }
      return () => undefined;
    },
  },
  {
    name: 'worker stopped (SIGSTOP) for 10 s with the append lock',
    holdMs: 10_000,
    isFelt: true,
    inject: async ({ world }) => {
      const program = world.programs['worker-1'];
      await world.links['worker-1'].set({
        matches: runs('svc.log_head for update'),
        breaks: 'answered',
        then: () => program.signal('SIGSTOP'),
      });
      return () => program.signal('SIGCONT');
    },
  },
];
