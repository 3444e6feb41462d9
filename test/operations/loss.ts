import { Client, type ClientOptions } from '../faults/client.js';
import { untilComplete } from '../faults/completion.js';
import { monitorLog } from '../faults/audit.js';
import { NO_ACTS } from '../faults/next-acts.js';
import { printed } from '../faults/observation.js';
import { differingStatuses, expectedOf, pathOf, type ExpectedStatus } from '../faults/public.js';
import type { Single } from '../faults/records.js';
import { PROCESSES, type World } from '../faults/world.js';
import { adminWith, done } from '../fixtures/admin.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { beginStep, seconds, STARTED, untilHealthy, type Day } from './steps.js';

const LOAD_MS = 5_000;
const COMPLETE_MS = 2 * 60_000;
const WRITERS = PROCESSES.filter((name) => name !== 'facade');

/** Admits requests without further acts, and waits until all are committed and public. */
async function load(world: World, options: ClientOptions, problems: string[]): Promise<Client> {
  const client = new Client({ ...options, actsPerSecond: NO_ACTS });
  client.start();
  await sleep(LOAD_MS);
  await client.stop();
  problems.push(...(await untilComplete(world, client, [], COMPLETE_MS)));
  return client;
}

const proofIdsOf = ({ records }: Client): string[] =>
  records.requests.flatMap((one) => (one.kind === 'single' ? (one.proofId ?? []) : one.proofIds));

const allWith = (ids: string[], status: string): ExpectedStatus[] =>
  ids.map((id) => ({ path: `proof/${id}`, status }));

/**
 * Loses the host of PostgreSQL after its archive failed, restores the backup, and adopts the leaves that the backup
 * lacks.
 */
export async function recover(day: Day, options: Omit<ClientOptions, 'run'>) {
  const { world, host } = day;
  const problems: string[] = [];
  const seen: string[] = [];
  await host.cutArchive();
  const lost = await load(world, { ...options, run: 'day-1' }, problems);
  problems.push(...(await monitorLog(world)));
  await beginStep(day, {
    alert: 'SvcTargetDown',
    // Any alert may fire, because the restore lasts longer than the `for` of some rules.
    mayAlert: /./,
    status: /the database cannot be reached/,
    ...STARTED,
  });
  await Promise.all(WRITERS.map((name) => world.programs[name].stop()));
  await host.lose();
  const began = performance.now();
  await host.restore();
  seen.push(
    `the backup and the archive are restored (after ${seconds(performance.now() - began)})`,
  );
  for (const link of Object.values(world.links)) link.redirect(host.running.port);

  const admin = (line: string[]) => adminWith({ DATABASE_URL: world.eraseUrl })(...line);
  const missing = await admin(['log', 'lost', world.snapshotDir, '--vkey', world.logVkey]);
  if (missing.code !== 1) problems.push(`log lost exited with ${String(missing.code)}, not 1`);
  const line = [
    'log',
    'adopt',
    world.snapshotDir,
    '--vkey',
    world.logVkey,
    '--reason',
    'host lost',
  ];
  const adopted = await done(admin([...line, '--confirm', world.origin]));
  seen.push(
    `${String(adopted['adopted'])} leaves adopted (after ${seconds(performance.now() - began)})`,
  );
  for (const name of WRITERS) world.programs[name].allowRestart();
  await Promise.all(WRITERS.map((name) => world.programs[name].ready()));
  const healthy = await untilHealthy(day);
  const found = await day.observation.finish();
  seen.push(...found.seen.map(printed));
  problems.push(...found.problems);

  const next = await load(world, { ...options, run: 'day-2' }, problems);
  seen.push(`requests are admitted and public (after ${seconds(performance.now() - began)})`);
  const known = day.client.records.requests.filter((one): one is Single => one.kind === 'single');
  const differing = await differingStatuses(world.publicUrl, [
    ...known.map((one) => ({ path: pathOf(one, 'proof'), status: expectedOf(one, 'proof') })),
    ...allWith(proofIdsOf(lost), 'BACKEND_LOOKUP_REQUIRED'),
    ...allWith(proofIdsOf(next), 'VALID'),
  ]);
  problems.push(...differing.map(({ problem }) => problem));
  if (Number(adopted['proofs']) < proofIdsOf(lost).length)
    problems.push('log adopt adopted too few proofs');
  return { healthy, seen, problems };
}
