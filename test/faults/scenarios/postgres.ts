import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import {
  lasting,
  onLinks,
  repeated,
  requireDisks,
  type Fault,
  type Heal,
  type Scene,
} from '../fault.js';
import type { World } from '../world.js';

const allLinks = ({ links }: World) => Object.values(links);

const restart = ({ world }: Scene) => world.database.restart();
const ended = (signal: 'SIGKILL' | 'SIGINT') => async (scene: Scene) => {
  scene.world.database.signal(signal);
  await scene.world.database.running.exited;
};

/** Kills all processes of Postgres at once, as a power loss would. */
export const ALL_KILLED = lasting(
  'Postgres killed with all of its processes at once',
  1_000,
  async ({ world: { database } }) => {
    database.killAll();
    await database.running.exited;
  },
  restart,
  { kind: 'database down', mustFail: true },
);

export const POSTGRES_FAULTS: Fault[] = [
  ALL_KILLED,
  lasting('Postgres killed (kill -9 of the postmaster)', 1_000, ended('SIGKILL'), restart, {
    kind: 'database down',
    mustFail: true,
  }),
  lasting('Postgres down', 5_000, ended('SIGINT'), restart, {
    kind: 'database down',
    mustFail: true,
  }),
  repeated(
    'Postgres ends every connection, ten times in 2 s',
    [10, 200],
    ({ world }) => world.database.terminateAll(),
    { kind: 'connections ended' },
  ),
  {
    name: 'Postgres out of connections',
    kind: 'database unusable',
    mustFail: true,
    holdMs: 4_000,
    inject: ({ world }) => takeAllConnections(world.database),
  },
  {
    name: 'Postgres: append lock held by another session',
    kind: 'append lock held',
    inject: async ({ world }) => {
      const release = await world.database.holdAppendLock();
      await sleep(5_000);
      return release;
    },
  },
  onLinks(
    'Postgres slow: 100 ms delay each way',
    3_000,
    allLinks,
    (link, isFaulty) => link.slow(isFaulty ? 100 : 0),
    'database slow',
  ),
  ...(['engine-1', 'worker-1', 'verifier', 'publisher'] as const).map((process) =>
    onLinks(
      `Postgres cut off from ${process}`,
      3_000,
      ({ links }) => [links[process]],
      (link, isFaulty) => link.cut(isFaulty),
      `${process} cut off`,
    ),
  ),
  onLinks(
    'Postgres partitioned: packets dropped',
    5_000,
    allLinks,
    (link, isFaulty) => link.stall(isFaulty),
    'database not responding',
  ),
  lasting(
    'Postgres out of disk',
    4_000,
    (scene) => requireDisks(scene).database.fill(),
    (scene) => requireDisks(scene).database.empty(),
    { kind: 'database disk full', mustFail: true, needsDisks: true },
  ),
  {
    name: 'Postgres out of disk for its write-ahead log: the server panics',
    kind: 'database down',
    holdMs: 1_000,
    mustFail: true,
    needsDisks: true,
    inject: async (scene) => {
      const { database } = requireDisks(scene);
      const cluster = scene.world.database;
      const { exited, superuserUrl } = cluster.running;
      // This connection may report the PANIC to a later query, so no other query uses it.
      const filler = postgres(superuserUrl, { max: 1 });
      // Prevents a restart within a second, which some programs would not notice.
      await filler`alter system set restart_after_crash = off`;
      await filler`select pg_reload_conf()`;
      await database.fill();
      const takeSegments = async (): Promise<void> => {
        for (;;) {
          await filler`
            select pg_switch_wal(), pg_logical_emit_message(true, 'filling', repeat('x', 1000000))`;
        }
      };
      // The server exits when it cannot switch to another WAL segment, and the driver may lose this query.
      takeSegments().catch(() => undefined);
      const hasEnded = await Promise.race([exited.then(() => true), sleep(20_000, false)]);
      await filler.end({ timeout: 0 });
      if (!hasEnded) throw new Error('PostgreSQL survives a full disk for its write-ahead log');
      return async () => {
        await database.empty();
        await cluster.restart();
        await cluster.sql`alter system reset restart_after_crash`;
        await cluster.sql`select pg_reload_conf()`;
      };
    },
  },
];

/** Takes every connection slot except those reserved for superusers, until the returned function is called. */
async function takeAllConnections(database: Scene['world']['database']): Promise<Heal> {
  const taken: postgres.Sql[] = [];
  const state = { hasEnded: false, refused: 0 };
  const take = async (): Promise<void> => {
    while (!state.hasEnded) {
      const sql = postgres(database.running.urlFor('svc_fsck'), {
        max: 1,
        idle_timeout: 0,
        onnotice: () => undefined,
        connection: { application_name: 'taker' },
      });
      try {
        await sql`select`;
        taken.push(sql);
      } catch {
        state.refused += 1;
        await sql.end({ timeout: 0 });
        await sleep(5);
      }
    }
  };
  // Reserves a connection first, because later even the superuser slots may be in use.
  const own = await database.sql.reserve();
  await own`select`;
  const taking = Promise.all(Array.from({ length: 8 }, take));
  const heal = async (): Promise<void> => {
    state.hasEnded = true;
    await taking;
    await Promise.all(taken.map((sql) => sql.end({ timeout: 0 })));
  };
  try {
    while (state.refused === 0) await sleep(20);
    // Ends the connections of the programs, and takes their slots before they reconnect.
    for (let time = 0; time < 5; time += 1) {
      await database.terminateAll(own);
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
