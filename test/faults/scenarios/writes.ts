import { setTimeout as sleep } from 'node:timers/promises';
import { atPlaces, type Fault, type Scene } from '../fault.js';
import type { Trap } from '../../fixtures/tcp-proxy.js';
import { linksOf, WRITE_POINTS, type WritePoint } from './write-points.js';

/** Matches a commit, or a statement outside a transaction, that contains all these texts. */
export const commitOf =
  (...statements: string[]): Trap['matches'] =>
  (sql, transaction) =>
    transaction === null
      ? statements.every((statement) => sql.includes(statement))
      : sql === 'commit' &&
        statements.every((statement) => transaction.some((one) => one.includes(statement)));

const TIMES = 3;
/** First pause between attempts to cause a write. Pauses grow, to limit the requests in the audit. */
const PAUSE_MS = 20;

/** Makes the write at `point` fail several times in a row, so that the program's retries fail too. */
async function failAt(scene: Scene, point: WritePoint, breaks: Trap['breaks']): Promise<void> {
  const trap: Trap = { matches: commitOf(...point.has, ...(point.reads ?? [])), breaks };
  const links = linksOf(scene, point);
  let hasTriggered = false;
  // The failures are divided among the processes of the program.
  const times = Math.ceil((point.times ?? TIMES) / links.length);
  const triggered = Promise.race(links.map((link) => link.set(trap, times))).then(() => {
    hasTriggered = true;
  });
  const { provoke } = point;
  const provoking = async (): Promise<void> => {
    for (let attempt = 1; provoke !== undefined && !hasTriggered; attempt += 1) {
      await provoke(scene);
      await sleep(attempt * PAUSE_MS);
    }
  };
  await Promise.all([triggered, provoking()]);
  for (const link of links) link.remove(trap);
}

const ACTORS = {
  'engine-1': 'engine',
  'engine-2': 'engine',
  'worker-1': 'worker',
  'worker-2': 'worker',
  verifier: 'verifier',
  publisher: 'publisher',
  admin: 'operator',
} as const;

const lost = (point: WritePoint): Fault => ({
  name: `${point.what}: the commit is lost, and then only its response`,
  injectMs: 60_000,
  isBeside: point.provoke === undefined,
  inject: async (scene) => {
    for (const breaks of ['unsent', 'unanswered'] as const) await failAt(scene, point, breaks);
  },
});

/** Writes with an unknown outcome: the caller gets an error whether or not the write happened. */
export const WRITE_FAULTS: Fault[] = [...new Set(Object.values(ACTORS))].map((actor) =>
  atPlaces(
    `${actor}: each commit is lost, and then only the response to each commit`,
    WRITE_POINTS.filter(({ of }) => ACTORS[of[0]!] === actor).map(lost),
    { kind: `${actor} write lost`, isBrief: true },
  ),
);
