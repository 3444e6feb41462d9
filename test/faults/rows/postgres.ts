import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import type { Fault, Heal, Scene } from '../fault.js';
import { ALL_KILLED } from './unsafe.js';

const links = ({ world }: Scene) => Object.values(world.links);

export const POSTGRES_FAULTS: Fault[] = [
  ALL_KILLED,
  {
    name: 'Postgres killed (kill -9 of the postmaster), back after 1 s',
    isFelt: true,
    holdMs: 1_000,
    inject: async ({ world: { database } }) => {
      database.signal('SIGKILL');
      await database.untilGone();
      return () => database.restart();
    },
  },
  {
    name: 'Postgres shut down at once (SIGQUIT) and restarted',
    inject: async ({ world: { database } }) => {
      database.signal('SIGQUIT');
      await database.untilGone();
      return () => database.restart();
    },
  },
  {
    name: 'Postgres down for 5 s',
    isFelt: true,
    holdMs: 5_000,
    inject: async ({ world: { database } }) => {
      database.signal('SIGINT');
      await database.untilGone();
      return () => database.restart();
    },
  },
  {
    name: 'Postgres ends every connection, ten times in 2 s',
    inject: async ({ world: { database } }) => {
      for (let time = 0; time < 10; time += 1) {
        await database.terminateAll();
        await sleep(200);
      }
      return () => undefined;
    },
  },
  {
    name: 'Postgres out of connections for 4 s',
    isFelt: true,
    holdMs: 4_000,
    inject: async ({ world: { database } }) => takeAllConnections(database),
  },
  {
    name: 'Postgres: the append lock held for 5 s',
    holdMs: 5_000,
    inject: async ({ world: { database } }) => {
      const holder = await database.sql.reserve();
      await holder.unsafe('begin');
      await holder.unsafe('select from svc.log_head for update');
      return async () => {
        await holder.unsafe('rollback');
        holder.release();
      };
    },
  },
  {
    name: 'Postgres slow: 100 ms delay each way for 3 s',
    holdMs: 3_000,
    inject: (scene) => {
      for (const link of links(scene)) link.slow(100);
      return Promise.resolve(() => {
        for (const link of links(scene)) link.slow(0);
      });
    },
  },
  ...(['engine-1', 'worker-1', 'verifier', 'publisher'] as const).map((process): Fault => ({
    name: `Postgres cut off from ${process} for 3 s`,
    holdMs: 3_000,
    inject: ({ world }) => {
      world.links[process].cut(true);
      return Promise.resolve(() => world.links[process].cut(false));
    },
  })),
  {
    name: 'Postgres partitioned: packets dropped for 5 s',
    holdMs: 5_000,
    inject: (scene) => {
      for (const link of links(scene)) link.stall(true);
      return Promise.resolve(() => {
        for (const link of links(scene)) link.stall(false);
      });
    },
  },
  {
    name: 'Postgres out of disk for 4 s',
    isFelt: true,
    holdMs: 4_000,
    needsDisks: true,
    inject: async (scene) => {
      const { database } = requireDisks(scene);
      await database.fill();
      return () => database.empty();
    },
  },
  {
    name: 'Postgres out of disk for its write-ahead log: the server panics',
    holdMs: 1_000,
    isFelt: true,
    needsDisks: true,
    inject: async (scene) => {
      const { database } = requireDisks(scene);
      const cluster = scene.world.database;
      await database.fill();
      // A connection that panicked may report its error to a later query: no other query uses this one.
      const filler = postgres(cluster.superuserUrl, { max: 1 });
      // Until there is no segment left to switch to.
      for (let time = 0; time < 60; time += 1) {
        const isAlive = await filler`
          select pg_switch_wal(), pg_logical_emit_message(true, 'filling', repeat('x', 1000000))`
          .then(() => true)
          .catch(() => false);
        if (!isAlive) break;
      }
      await filler.end({ timeout: 0 });
      return async () => {
        await database.empty();
        if (await cluster.isGone()) await cluster.restart();
      };
    },
  },
];

function requireDisks({ world: { disks } }: Scene) {
  if (typeof disks === 'string') throw new Error(disks);
  return disks;
}

/** Takes every connection slot except those reserved for superusers, until the returned function is called. */
async function takeAllConnections(database: Scene['world']['database']): Promise<Heal> {
  const hogs: postgres.Sql[] = [];
  const state = { isOver: false, refused: 0 };
  const hog = async (): Promise<void> => {
    while (!state.isOver) {
      const sql = postgres(database.urlFor('svc_fsck'), {
        max: 1,
        idle_timeout: 0,
        onnotice: () => undefined,
        connection: { application_name: 'hog' },
      });
      try {
        await sql`select`;
        hogs.push(sql);
      } catch {
        state.refused += 1;
        await sql.end({ timeout: 0 });
        await sleep(5);
      }
    }
  };
  // Had before there is none: whoever is still to be told that there is none has one meanwhile, and be
  // it one that is kept for a superuser.
  const own = await database.sql.reserve();
  await own`select`;
  const hogging = Promise.all(Array.from({ length: 8 }, hog));
  const heal = async (): Promise<void> => {
    state.isOver = true;
    await hogging;
    await Promise.all(hogs.map((sql) => sql.end({ timeout: 0 })));
  };
  try {
    while (state.refused === 0) await sleep(20);
    // Ends the connections of the programs; others take the slots before they reconnect.
    for (let time = 0; time < 5; time += 1) {
      await database.terminateAll('svc-%', own);
      await sleep(100);
    }
  } catch (error) {
    await heal();
    throw error;
  } finally {
    own.release();
  }
  return heal;
}
