import type { Fault, Scene } from '../fault.js';
import type { Link, Trap } from '../link.js';

/** A write of a program into the registry. */
interface WritePoint {
  what: string;
  links(scene: Scene): Link[];
  /** A statement that no other write has. */
  statement: string;
}

const POINTS: WritePoint[] = [
  {
    what: 'the engine takes in admissions',
    links: ({ world }) => [world.links.engine],
    statement: 'insert into svc.intake_pending (proof_id, accepted_at) ',
  },
  {
    what: 'the engine takes in a batch',
    links: ({ world }) => [world.links.engine],
    statement: 'insert into svc.batch_progress ',
  },
  {
    what: 'a worker appends',
    links: ({ world }) => [world.links['worker-1'], world.links['worker-2']],
    statement: 'insert into svc.proof ',
  },
  {
    what: 'the verifier writes verdicts',
    links: ({ world }) => [world.links.verifier],
    statement: 'insert into svc.verdict',
  },
  {
    what: 'the publisher stores a checkpoint',
    links: ({ world }) => [world.links.publisher],
    statement: 'insert into svc.checkpoint ',
  },
];

/** The commit of a transaction that has the statement, or the statement where it is its own. */
export const commitOf =
  (statement: string): Trap['matches'] =>
  (sql, transaction) =>
    transaction === null
      ? sql.startsWith(statement)
      : sql === 'commit' && transaction.some((one) => one.startsWith(statement));

const TIMES = 3;

const rowOf = ({ what, links, statement }: WritePoint, breaks: 'unsent' | 'unanswered'): Fault => ({
  name:
    breaks === 'unsent'
      ? `${what}: the commit is lost on its way`
      : `${what}: committed, and the answer is lost`,
  inject: async (scene) => {
    const trap: Trap = { matches: commitOf(statement), breaks };
    // Several times in a row: what is tried again fails again.
    await Promise.race(links(scene).map((link) => link.set(trap, TIMES)));
    return () => undefined;
  },
});

/** Each write that may have happened or not: whoever asked is told that it failed, either way. */
export const WRITE_FAULTS: Fault[] = POINTS.flatMap((point) => [
  rowOf(point, 'unsent'),
  rowOf(point, 'unanswered'),
]);
