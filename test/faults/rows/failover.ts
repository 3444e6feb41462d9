import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { readiness } from '#bench/readiness';
import type { Fault, Scene } from '../fault.js';

async function takeDown({ world: { database, links } }: Scene): Promise<() => Promise<void>> {
  database.signal('SIGKILL');
  await database.untilGone();
  return async () => {
    await database.promote();
    for (const link of Object.values(links)) link.redirect(database.port);
  };
}

/** What was published when the standby stopped to hear of it. */
let published = 0;

export const FAILOVER_FAULTS: Fault[] = [
  {
    name: 'Postgres failed over to a synchronous standby',
    holdMs: 500,
    isLast: true,
    isFelt: true,
    inject: async (scene) => {
      await scene.world.database.addStandby(true);
      await scene.client.nextGoodAnswer();
      await sleep(2_000);
      return takeDown(scene);
    },
  },
  {
    name: 'Postgres failed over to a standby that lost commits: it is not signed over',
    isLast: true,
    inject: async (scene) => {
      const { database, publicUrl } = scene.world;
      await database.addStandby(false);
      await scene.client.nextGoodAnswer();
      await sleep(1_000);
      database.cutReplication();
      await sleep(3_000);
      published = (await readiness(publicUrl)).tree_size;
      return takeDown(scene);
    },
    mayEnd: ['publisher'],
    mustRefuse: requireStopped,
  },
];

/** The publisher stops with words on what to do, and the public sees what it saw. */
async function requireStopped({ world }: Scene): Promise<string[]> {
  const { publisher } = world.programs;
  const deadline = performance.now() + 20_000;
  while (publisher.ended.length === 0 && performance.now() < deadline) await sleep(100);
  const { tree_size: now } = await readiness(world.publicUrl);
  const said = await readFile(publisher.logFile, 'utf8');
  const [row] = await world.database.sql<{ n: number }[]>`
    select coalesce(max(tree_size), 0)::int as n from svc.checkpoint`;
  return [
    ...(publisher.ended.length === 0 ? ['the publisher goes on over what was lost'] : []),
    ...(/publisher: .*database/i.test(said) ? [] : ['the publisher does not say why it stopped']),
    ...(now >= published ? [] : ['the public sees less than before']),
    ...((row?.n ?? 0) < published ? [] : ['nothing was lost: the fault did not happen']),
  ];
}
