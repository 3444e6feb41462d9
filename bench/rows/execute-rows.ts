import { availableParallelism } from 'node:os';
import type { ExecuteFound, ExecuteRound } from '../singles/execute-run.js';
import { median, spread } from '../figures/median.js';
import { percentile } from '../figures/percentile.js';
import { rowOf, type Row } from '../row.js';
import { Unexpected } from './unexpected.js';

const rate = ({ requests, seconds }: ExecuteRound): number => requests / seconds;
const rates = (rounds: readonly ExecuteRound[]): number[] => rounds.map(rate);
const latency = (rounds: readonly ExecuteRound[], percent: number): number =>
  percentile(
    rounds.flatMap(({ latencies }) => latencies),
    percent,
  );
const whole = (value: number): string => value.toFixed(0);

/** What the execute measurement has to say. */
export function executeRows(found: ExecuteFound): Row[] {
  return [
    throughput(found),
    bound(found),
    ofBound(found),
    tail(found),
    halfLoad(found),
    cpu(found),
    faults(found),
  ];
}

const name = ({ connections }: ExecuteFound): string =>
  `single execute, ${String(connections)} connections`;

function throughput(found: ExecuteFound): Row {
  const { engine, echo } = found;
  const busy = (rounds: readonly ExecuteRound[]): string =>
    median(rounds.map(({ cpuSeconds, seconds }) => (cpuSeconds / seconds) * 100)).toFixed(0);
  return rowOf({
    row: name(found),
    value: median(rates(engine)),
    unit: 'req/s',
    against: {
      what: 'an Express app that parses, validates and echoes, in one process',
      value: median(rates(echo)),
    },
    reach: { ratio: { atLeast: 0.4 } },
    note:
      `middle of ${String(engine.length)} rounds in turn: ${spread(rates(engine))}, the echo ${spread(rates(echo))}; ` +
      `bound by CPU: nothing is pinned, the echo has a core and wrk the other, the service shares ` +
      `${String(availableParallelism())} cores among seven processes and wrk; wrk was busy ${busy(engine)} % of a core, ${busy(echo)} % with the echo`,
  });
}

/** What processes that hand on what is committed make of single executions, whatever they are. */
function bound({ echo, pipeline }: ExecuteFound): Row {
  return rowOf({
    row: 'single execute: bare pipeline',
    value: median(rates(pipeline)),
    unit: 'req/s',
    against: { what: 'the echo', value: median(rates(echo)) },
    note:
      `the echo's own app, answering when its request is committed, signed and committed again; others verify and publish; ` +
      `p99 ${latency(pipeline, 99).toFixed(1)} ms; ${spread(rates(pipeline))}; CPU of a request: ${partsOf(pipeline)}`,
  });
}

function ofBound({ engine, pipeline }: ExecuteFound): Row {
  return rowOf({
    row: 'single execute, of the bare pipeline',
    value: median(rates(engine)),
    unit: 'req/s',
    against: { what: 'the bare pipeline', value: median(rates(pipeline)) },
    note: 'what keys, rates, tenants, policy, gates, a queue, a log and receipts leave of it',
  });
}

function tail(found: ExecuteFound): Row {
  const { engine, echo } = found;
  return rowOf({
    row: `${name(found)}, p99`,
    value: latency(engine, 99),
    unit: 'ms',
    reach: { value: { atMost: 50 } },
    note:
      `saturated: each connection sends as soon as it is answered; p50 ${latency(engine, 50).toFixed(1)}, ` +
      `p99 of single rounds ${spread(
        engine.map((round) => latency([round], 99)),
        1,
      )}; the echo ${latency(echo, 99).toFixed(1)}`,
  });
}

function halfLoad(found: ExecuteFound): Row {
  const { half } = found;
  return rowOf({
    row: 'single execute, half load, p99',
    value: latency([half], 99),
    unit: 'ms',
    note: `${whole(rate(half))} req/s over as many connections; p50 ${latency([half], 50).toFixed(1)}`,
  });
}

/** Of one request, the mean over all rounds. */
const micros = (rounds: readonly ExecuteRound[], of: (round: ExecuteRound) => number): number =>
  rounds.reduce((sum, round) => sum + of(round) * round.requests, 0) /
  rounds.reduce((sum, { requests }) => sum + requests, 0);

const partsOf = (rounds: readonly ExecuteRound[]): string =>
  Object.keys(rounds[0]?.cpu.micros ?? {})
    .map((one) => `${one} ${whole(micros(rounds, (round) => round.cpu.micros[one] ?? 0))}`)
    .join(', ');

/** Of all rounds together: hardly changed by what else the machine does. */
function cpu({ engine, echo }: ExecuteFound): Row {
  const wrk = ({ cpuSeconds, requests }: ExecuteRound): number => (cpuSeconds * 1e6) / requests;
  const others = engine.map((round) => (round.cpu.others ?? 0) * 100);
  return rowOf({
    row: 'single execute: CPU of a request',
    value: micros(engine, (round) => round.cpu.total),
    unit: 'µs',
    against: { what: 'the echo', value: micros(echo, (round) => round.cpu.total) },
    note: `${partsOf(engine)}, and wrk ${whole(micros(engine, wrk))}; others, wrk among them, took ${spread(others)} % of the machine`,
  });
}

/** Anything but a 200 is one: no body of the load is denied, and none waits for long. */
function faults({ engine, echo, pipeline, half, receipts }: ExecuteFound): Row {
  const unexpected = new Unexpected();
  const rounds = [...engine, ...echo, ...pipeline, half];
  for (const { answers, failed } of rounds) {
    unexpected.add('without an answer', failed);
    for (const [status, count] of Object.entries(answers)) {
      if (status !== '200') unexpected.add(status, count);
    }
  }
  for (const fault of receipts.wrong) unexpected.add(`receipt ${fault}`);
  if (receipts.checked === 0) unexpected.add('no receipt was checked');
  const requests = rounds.reduce((sum, one) => sum + one.requests, 0);
  return unexpected.row(
    'single execute, errors and timeouts',
    `${whole(requests)} requests; ${String(receipts.checked)} random receipts verified from the outside`,
  );
}
