import type { Bare } from '../bare/bare.js';
import type { BatchRun } from '../batches/batch-run.js';
import type { Window } from '../batches/window.js';
import type { DatabaseSize } from '../figures/database-size.js';
import { DURABLE_SETTINGS } from '../service/durability.js';
import { rowOf, type Row } from '../row.js';

/** Everything that the batch rows are made of. */
export interface BatchFound {
  bare: readonly [before: Bare, after: Bare];
  /** What the same way takes with nothing of the service on it. */
  pipeline: Window;
  run: BatchRun;
  workers: number;
  size: DatabaseSize;
  /** Settings of the database that were found on, of those that keep what is committed. */
  durable: number;
}

/** Receipts that have to be checked for the figure to count. */
const CHECKED_QUICK = 20;
const CHECKED_WHOLE = 100;

const whole = (value: number): string =>
  value.toLocaleString('en-US', { maximumFractionDigits: 0 });

/** What the batch measurement has to say. */
export function batchRows(found: BatchFound, quick: boolean): Row[] {
  return [
    admission(found),
    bound(found),
    ofBound(found),
    cpu(found),
    checks(found, quick),
    lost(found),
    size(found, quick),
    durable(found),
  ];
}

function admission({ bare, run, workers }: BatchFound): Row {
  const [before, after] = bare;
  const others = run.cpu.others === null ? '' : `, others took ${whole(run.cpu.others * 100)} %`;
  return rowOf({
    row: 'batch admission',
    value: rateOf(run),
    unit: 'proofs/s',
    against: {
      what: `a bare loop in ${String(before.processes)} processes: ${whole(before.rate)} before, ${whole(after.rate)} after`,
      value: (before.rate + after.rate) / 2,
    },
    reach: { ratio: { atLeast: 0.75 }, value: { atLeast: 10_000 } },
    note:
      `${whole(run.proofs)} proofs became public in ${whole(run.seconds)} s; one tenant, ${whole(run.batches)} batches of ` +
      `${whole(run.items / run.batches)}, ${String(workers)} worker; bound by CPU: ${whole(run.cpu.total)} µs a proof ` +
      `is at most ${whole((before.processes * 1e6) / run.cpu.total)}/s of ${String(before.processes)} free cores${others}`,
  });
}

const rateOf = ({ proofs, seconds }: Window): number => proofs / seconds;
const partsOf = ({ cpu: { micros } }: Window): string =>
  Object.entries(micros)
    .map(([name, one]) => `${name} ${whole(one)}`)
    .join(', ');

/** What processes that hand on what is committed make of the machine, whatever they are. */
function bound({ bare: [before, after], pipeline }: BatchFound): Row {
  return rowOf({
    row: 'batch admission: bare pipeline',
    value: rateOf(pipeline),
    unit: 'proofs/s',
    against: { what: 'the bare loop', value: (before.rate + after.rate) / 2 },
    note: `accept, sign, verify and publish, a process each, over what is committed; ${whole(pipeline.cpu.total)} µs of CPU a proof: ${partsOf(pipeline)}`,
  });
}

/** What is left of that by all that the service does beside. */
function ofBound({ pipeline, run }: BatchFound): Row {
  return rowOf({
    row: 'batch admission, of the bare pipeline',
    value: rateOf(run),
    unit: 'proofs/s',
    against: { what: 'the bare pipeline', value: rateOf(pipeline) },
    note: `keys, tenants, policy, gates, a queue, a log and what anything is found by take the rest: ${whole(run.cpu.total)} µs of CPU a proof against ${whole(pipeline.cpu.total)}`,
  });
}

/** Who took how much: hardly changed by what else the machine does. */
function cpu({ bare, run }: BatchFound): Row {
  const [before, after] = bare;
  const of = ({ loopMicros, postgresMicros }: typeof before): number => loopMicros + postgresMicros;
  const loop = (before.loopMicros + after.loopMicros) / 2;
  return rowOf({
    row: 'batch admission: CPU of a proof',
    value: run.cpu.total,
    unit: 'µs',
    against: {
      what: `the bare loop: itself ${whole(loop)}, Postgres ${whole((before.postgresMicros + after.postgresMicros) / 2)}`,
      value: (of(before) + of(after)) / 2,
    },
    note: partsOf(run),
  });
}

function checks({ run }: BatchFound, quick: boolean): Row {
  const { checked, denied, wrong } = run.checked;
  const right = checked - wrong.length;
  return rowOf({
    row: 'receipts checked from outside',
    value: right,
    unit: 'right',
    against: { what: 'all that were checked, at random, during the run', value: checked },
    reach: {
      ratio: { atLeast: 1 },
      value: { atLeast: quick ? CHECKED_QUICK : CHECKED_WHOLE },
    },
    note:
      `public verdict, response hash, export offline under pinned keys, inclusion under the public checkpoint; ` +
      `${String(denied)} denials; ${wrong.length === 0 ? '0 wrong' : `${String(wrong.length)} WRONG: ${wrong.slice(0, 3).join('; ')}`}`,
  });
}

function lost({ run }: BatchFound): Row {
  const waited = Object.entries(run.waited).map(([code, count]) => `${String(count)} × ${code}`);
  return rowOf({
    row: 'batch items that never became public',
    value: run.lost,
    unit: 'items',
    reach: { value: { atMost: 0, atLeast: 0 } },
    note: `of ${whole(run.items)} accepted; told to come again: ${waited.join(', ') || 'never'}`,
  });
}

function size({ size: { bytes, proofs } }: BatchFound, quick: boolean): Row {
  return rowOf({
    row: 'bytes in Postgres per proof, after batches',
    value: bytes / proofs,
    unit: 'bytes',
    // A few ten thousand proofs share what is pending and an empty registry, and have nothing to reach.
    ...(!quick && { reach: { value: { atMost: 1_600 } } }),
    note: `all tables and indexes of ${whole(proofs)} proofs, just written, before any vacuum is done`,
  });
}

function durable({ durable: on }: BatchFound): Row {
  return rowOf({
    row: 'settings that keep what is committed',
    value: on,
    unit: 'on',
    reach: { value: { atLeast: DURABLE_SETTINGS } },
    note: 'fsync, synchronous_commit and full_page_writes, as each of the roles that write sees them',
  });
}
