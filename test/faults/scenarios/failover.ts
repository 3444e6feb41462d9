import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { readiness } from '#bench/harness/public-api';
import type { Fault, Scene } from '../fault.js';
import { until } from '../pace.js';

async function takeDown({ world: { database, links } }: Scene): Promise<() => Promise<void>> {
  database.signal('SIGKILL');
  await database.running.exited;
  return async () => {
    await database.promote();
    for (const link of Object.values(links)) link.redirect(database.running.port);
  };
}

/** Tree size of the last snapshot that is published before the standby is promoted. */
let published = 0;

/** This wait is long, because the restart that adds a standby interrupts publishing. */
const PUBLISHED_WITHIN_MS = 45_000;

async function newestCheckpoint({ world: { database } }: Scene): Promise<number> {
  const [row] = await database.sql<{ n: number }[]>`
    select coalesce(max(tree_size), 0)::int as n from svc.checkpoint`;
  return row?.n ?? 0;
}

async function logSize({ world: { database } }: Scene): Promise<number> {
  const [head] = await database.sql<{ n: number }[]>`select tree_size::int as n from svc.log_head`;
  if (head === undefined) throw new Error('the log has no head');
  return head.n;
}

async function publishedAfter(known: number, publicUrl: string): Promise<number> {
  let size = 0;
  const isBeyond = async (): Promise<boolean> =>
    (size = (await readiness(publicUrl)).tree_size) > known;
  if (await until(isBeyond, PUBLISHED_WITHIN_MS, 100)) return size;
  throw new Error('nothing more was published before the failover');
}

export const FAILOVER_FAULTS: Fault[] = [
  {
    name: 'Postgres failed over to a synchronous standby',
    kind: 'database down',
    holdMs: 500,
    isLast: true,
    mustFail: true,
    inject: async (scene) => {
      await scene.world.database.addStandby(true);
      await scene.client.nextSuccess();
      await sleep(2_000);
      return takeDown(scene);
    },
  },
  {
    name: 'Postgres failed over to a standby that lost commits: the publisher stops',
    kind: 'database lost commits',
    isLast: true,
    inject: async (scene) => {
      const { database, publicUrl } = scene.world;
      await database.addStandby(false);
      await scene.client.nextSuccess();
      await sleep(1_000);
      database.cutReplication();
      // The standby may have received all leaves until now, and receives no later leaf.
      const known = await logSize(scene);
      published = await publishedAfter(known, publicUrl);
      return takeDown(scene);
    },
    mayExit: ['publisher'],
    mustReject: requireStopped,
  },
];

/** Checks that the publisher stops and logs the reason, and that the public view does not shrink. */
async function requireStopped(scene: Scene): Promise<string[]> {
  const { world } = scene;
  const { publisher } = world.programs;
  await until(() => publisher.ended.length > 0, 20_000, 100);
  const { tree_size: now } = await readiness(world.publicUrl);
  const log = await readFile(publisher.logFile, 'utf8');
  const left = await newestCheckpoint(scene);
  return [
    ...(publisher.ended.length === 0 ? ['the publisher continues after lost commits'] : []),
    ...(/"level":"fatal".*"msg":"The database has/.test(log)
      ? []
      : ['the publisher logged no reason']),
    ...(now >= published ? [] : ['fewer leaves are public than before']),
    ...(left < published ? [] : ['nothing was lost: the fault did not happen']),
  ];
}
