import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault, Scene } from '../fault.js';

function snapshotDisk({ world: { disks } }: Scene) {
  if (typeof disks === 'string') throw new Error(disks);
  return disks.snapshot;
}

export const PUBLISHER_FAULTS: Fault[] = [
  {
    name: 'two publishers, the leader killed',
    holdMs: 1_000,
    inject: async ({ world }) => {
      const other = world.startAnother('publisher');
      await other.ready();
      await sleep(2_500);
      world.programs.publisher.hold();
      await sleep(1_000);
      // Both are there again, and one of them leads.
      world.programs.publisher.letGo();
      return () => undefined;
    },
    expects: ({ world }) => world.stopOthers(),
  },
  {
    name: 'two publishers, the leader stopped (SIGSTOP) for 10 s',
    holdMs: 10_000,
    inject: async ({ world }) => {
      const other = world.startAnother('publisher');
      await other.ready();
      await sleep(1_500);
      world.programs.publisher.signal('SIGSTOP');
      return () => world.programs.publisher.signal('SIGCONT');
    },
    expects: ({ world }) => world.stopOthers(),
  },
  {
    name: 'snapshot directory out of disk for 5 s',
    needsDisks: true,
    holdMs: 5_000,
    inject: async (scene) => {
      const disk = snapshotDisk(scene);
      await disk.fill();
      return () => disk.empty();
    },
  },
  {
    name: 'snapshot directory read-only for 5 s',
    needsDisks: true,
    holdMs: 5_000,
    inject: async (scene) => {
      const disk = snapshotDisk(scene);
      await untilReadOnly(disk);
      return () => disk.setReadOnly(false);
    },
  },
];

/** Refused while a file is being written. */
async function untilReadOnly(disk: ReturnType<typeof snapshotDisk>): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      await disk.setReadOnly(true);
      return;
    } catch (error) {
      if (tries === 200) throw error;
      await sleep(20);
    }
  }
}
