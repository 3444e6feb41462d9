import { readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { builtFile } from '#bench/harness/child';
import { runFsck } from '../audit.js';
import { atPlaces, type Fault, type Scene } from '../fault.js';
import { until } from '../pace.js';
import { commitOf } from './writes.js';

/** Maximum wait for a publish cycle with changes, in milliseconds. */
const CYCLE_MS = 15_000;
/** A write that does not occur in this many publish cycles is considered not to exist. */
const CHANGED_CYCLES = 3;
/** A publish cycle writes at least six files: tile, entries, page, shares, checkpoint, snapshot. */
const FEWEST_WRITES = 6;
/** Later writes of a cycle are selected by name, from the kinds below. */
const NUMBERED_WRITES = 10;
/** The kinds of files. Some cycles write only a few kinds, so a count may skip a kind. */
const WANTED = [
  'map/',
  '.next-shares',
  'tile/0/',
  'tile/entries/',
  'checkpoint',
  'lookup/snapshot',
];

const linesOf = async (file: string): Promise<string[]> =>
  (await readFile(file, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');

/** Pages of the maps are named by their hashes. */
const shortened = (path: string): string => path.replace(/([0-9a-f]{8})[0-9a-f]{56}/, '$1');

/** Writes at which each scenario killed the publisher, and the problems found after each kill. */
const killedAt = new Map<string, string[]>();
const wrong = new Map<string, string[]>();

async function killAtEach(scene: Scene, at: 'staged' | 'in-place'): Promise<void> {
  const { world } = scene;
  const { publisher } = world.programs;
  const orders = join(world.dir, `kill-${at}`);
  const [died, ticks] = [`${orders}.died`, `${orders}.ticks`];
  const found: string[] = [];
  wrong.set(at, found);
  // An earlier scenario on this stack may have left this file.
  await rm(died, { force: true });
  await publisher.restartWith(['--import', builtFile('test/faults/kill-at-write')], {
    KILL_AT_WRITE_FILE: orders,
  });
  const killAt = async (which: string): Promise<boolean> => {
    const before = (await linesOf(died)).length;
    const { pid } = publisher;
    await rm(ticks, { force: true });
    publisher.expectKill();
    await writeFile(orders, `${which} ${at}`);
    const isDead = async (): Promise<boolean> => (await linesOf(died)).length > before;
    const isOver = async (): Promise<boolean> => {
      const news = (await linesOf(ticks)).filter((writes) => Number(writes) > 1);
      return !WANTED.includes(which) && news.length >= CHANGED_CYCLES;
    };
    let hasDied = false;
    await until(async () => (hasDied = await isDead()) || isOver(), CYCLE_MS);
    if (!hasDied) return false;
    const path = (await linesOf(died)).at(-1) ?? '';
    const where = `killed at write ${which} of a publish cycle, ${path}`;
    if (!(await until(() => publisher.pid !== pid, CYCLE_MS)))
      found.push(`${where}: the publisher still runs`);
    const [problem] = await runFsck(world, 'snapshot');
    if (problem !== undefined) found.push(`${where}: ${problem}`);
    await expireLock(world.snapshotDir);
    return true;
  };
  let write = 0;
  while (write < NUMBERED_WRITES && (await killAt(String(write)))) write += 1;
  for (const wanted of WANTED) {
    const paths = await linesOf(died);
    if (!paths.some((path) => path.startsWith(wanted))) await killAt(wanted);
  }
  publisher.expectKill(false);
  await rm(orders, { force: true });
  killedAt.set(at, await linesOf(died));
}

/** Makes the lock of the dead publisher look expired, instead of waiting five seconds. */
async function expireLock(snapshotDir: string): Promise<void> {
  const before = new Date(Date.now() - 60_000);
  await utimes(join(snapshotDir, '.lock'), before, before).catch(() => undefined);
}

function verdictOn(at: string): string[] {
  const paths = killedAt.get(at) ?? [];
  const found = wrong.get(at) ?? [];
  if (paths.length < FEWEST_WRITES) found.push(`killed at only ${String(paths.length)} writes`);
  for (const wanted of WANTED) {
    if (!paths.some((path) => path.startsWith(wanted))) found.push(`never killed at ${wanted}`);
  }
  return found;
}

const atEach = (at: 'staged' | 'in-place', position: string): Fault => ({
  name: `publisher killed at each write of a publish cycle, ${position}`,
  kind: 'publisher killed repeatedly',
  needsDirectory: true,
  injectMs: 180_000,
  inject: async (scene) => {
    await killAtEach(scene, at);
  },
  note: () => `killed at ${(killedAt.get(at) ?? []).map(shortened).join(', ')}`,
  expects: () => Promise.resolve(verdictOn(at)),
});

const atStatement = (statement: string, when: string, breaks: 'unsent' | 'unanswered'): Fault => ({
  name: `publisher killed ${when}`,
  inject: async ({ world }) => {
    const { publisher } = world.programs;
    await world.links.publisher.set({
      matches: commitOf(statement),
      breaks,
      then: () => publisher.signal('SIGKILL'),
    });
    await expireLock(world.snapshotDir);
  },
});

const ENTRY = 'select svc.append_snapshot(';
const CHECKPOINT = 'insert into svc.checkpoint ';

/** test/publisher/write-order.test.ts verifies the files after each write as a reader would. */
export const PUBLISHER_WRITE_FAULTS: Fault[] = [
  atEach('staged', 'before the file is renamed'),
  atEach('in-place', 'after the file is renamed'),
  atPlaces(
    'publisher killed at each write to the database',
    [
      atStatement(ENTRY, 'before its snapshot entry is in the log', 'unsent'),
      atStatement(ENTRY, 'after its snapshot entry, before the answer arrives', 'unanswered'),
      atStatement(CHECKPOINT, 'after it signed a checkpoint, before it stores it', 'unsent'),
      atStatement(CHECKPOINT, 'after it stored a checkpoint, before the answer', 'unanswered'),
    ],
    { kind: 'publisher killed repeatedly', isBrief: true },
  ),
];
