import type { Result } from '../harness/scenario.js';
import { percentile, sumOf } from '../harness/statistics.js';
import { type Callback, Clock, generator, Server } from './events.js';

/**
 * Discrete-event model of the pipeline from accepted requests to public verdicts, in milliseconds. Costs
 * are given; queues, groups, order and publish cycles are simulated one by one.
 */

/** Microseconds of CPU per proof. `lock`: microseconds per proof under the append lock. */
type Costs = Record<
  'engine' | 'worker' | 'verifier' | 'publisher' | 'postgres' | 'others' | 'lock',
  number
>;

/** Maximum proofs per second under the append lock, in groups of 1,000 on idle cores (docs/capacity.md). */
const LOCK_CEILING = 32_000;

export function measuredCosts(results: readonly Pick<Result, 'name' | 'note'>[]): Costs {
  const row = results.find(({ name }) => name === 'batch admission: CPU per proof');
  const shares = new Map<string, number>();
  for (const [, name = '', micros] of (row?.note ?? '').matchAll(/(\w+) (\d+)/g))
    shares.set(name, Number(micros));
  const take = (name: string): number => {
    const micros = shares.get(name);
    if (micros === undefined) throw new Error(`the results have no CPU time of ${name}`);
    shares.delete(name);
    return micros;
  };
  return {
    engine: take('engine'),
    worker: take('worker'),
    verifier: take('verifier'),
    publisher: take('publisher'),
    postgres: take('Postgres'),
    others: sumOf([...shares.values()], (micros) => micros),
    lock: 1e6 / LOCK_CEILING,
  };
}

/** Costs that no bench of this pipeline measures. */
const ASSUMED = {
  /** Milliseconds under the append lock for one entry; for a group, the part that does not depend on its size. */
  commitMs: 2,
  /** Microseconds to insert a proof into a map over several logs, in the slowest prototype. */
  map: 16,
  /** Milliseconds of a publish cycle without proofs. */
  cycleMs: 40,
};

export interface Setup {
  costs: Costs;
  /** Share of the load that each log gets. */
  shares: readonly number[];
  /** `each`: a publisher and a map per log. `one`: one publisher. `joined`: publishers with one map. */
  publishing: 'each' | 'one' | 'joined';
  /** Threads of each log's verifier. */
  checkers: number;
  /** Worker processes of each log. */
  workers: number;
  /**
   * `rows`: verdicts get no log entries. `at each cycle`, `between cycles`: an entry is appended when a
   * publish cycle begins, or half a second later.
   */
  verdicts: 'rows' | 'at each cycle' | 'between cycles';
  /** Cores that all tasks share; unlimited if absent. */
  cores?: number;
  seconds?: number;
}

const REQUEST_ITEMS = 500;
const GROUP_ITEMS = 1_000;
const GROUPS_PER_WORKER = 2;
const RANGE = { least: 1_000, most: 4_000 };
const PAUSE_MS = 200;
const CYCLE_MS = 500;
const POLL_MS = 100;
const WARM_UP_MS = 10_000;

/** A log with its own workers, append lock, verifier and publisher. */
class Log {
  /** Numbers of leaves, from the first on, that are checked, covered by a verdict, and public. */
  checked = 0;
  covered = 0;
  published = 0;
  /** Milliseconds from commit to publication, of each request after the warm-up. */
  readonly delays: number[] = [];
  readonly lock: Server;
  readonly publisher: Server;
  readonly servers: Server[];
  private readonly backends: Server;
  private readonly checkers: Server;
  private readonly workers: { process: Server; groups: number }[];
  private readonly requests: { end: number; at: number }[] = [];
  private readonly groups: { end: number; at: number }[] = [];
  /** The end of each checked range behind the checked prefix, by the start of the range. */
  private readonly ranges = new Map<number, number>();
  private accepted = 0;
  private queued = 0;
  private size = 0;
  private claimed = 0;
  private pausedUntil = 0;

  constructor(
    private readonly clock: Clock,
    cores: Server | null,
    private readonly setup: Setup,
    private readonly random: () => number,
  ) {
    const server = (name: string, width = 1): Server => new Server(clock, cores, name, width);
    this.lock = server('append lock');
    this.publisher = server('publisher');
    this.backends = server('PostgreSQL', Infinity);
    this.checkers = server('verifier', setup.checkers);
    const processes = Array.from({ length: setup.workers }, () => server('worker'));
    this.workers = processes.map((process) => ({ process, groups: 0 }));
    this.servers = [this.lock, this.publisher, this.checkers, ...processes];
  }

  accept(): void {
    const { engine, postgres, lock, others } = this.setup.costs;
    this.accepted += REQUEST_ITEMS;
    this.requests.push({ end: this.accepted, at: this.clock.now });
    // Engines have no limit, because more can be added. PostgreSQL's cost includes its time under the
    // append lock.
    const micros = engine + others + Math.max(0, postgres - lock);
    this.backends.run(toMs(micros, REQUEST_ITEMS), () => {
      this.queued += REQUEST_ITEMS;
      this.decide();
    });
  }

  /**
   * Workers take waiting items in groups; each prepares a group while another group waits for the
   * append lock.
   */
  private decide(): void {
    const { lock, worker: cpu } = this.setup.costs;
    const perItem = Math.max(0, toMs(lock, 1) - ASSUMED.commitMs / GROUP_ITEMS);
    for (const worker of this.workers) {
      while (this.queued > 0 && worker.groups < GROUPS_PER_WORKER) {
        const items = Math.min(this.queued, GROUP_ITEMS);
        this.queued -= items;
        worker.groups += 1;
        worker.process.run(toMs(cpu, items), () =>
          this.lock.run(ASSUMED.commitMs + perItem * items, () => {
            worker.groups -= 1;
            this.size += items;
            this.groups.push({ end: this.size, at: this.clock.now });
            this.decide();
            this.check();
          }),
        );
      }
    }
  }

  /** Gives the next range to each free thread of the verifier, and pauses between two short ranges. */
  private check(): void {
    while (this.checkers.isFree && this.claimed < this.size) {
      const open = this.size - this.claimed;
      if (open < RANGE.least) {
        if (this.clock.now < this.pausedUntil) return;
        this.pausedUntil = this.clock.now + PAUSE_MS;
        this.clock.after(PAUSE_MS, () => this.check());
      }
      const from = this.claimed;
      const share = Math.max(RANGE.least, Math.ceil(open / this.setup.checkers));
      const to = from + Math.min(open, share, RANGE.most);
      this.claimed = to;
      // Uneven durations, so that ranges do not end in the order in which they begin.
      const work = toMs(this.setup.costs.verifier, to - from) * (0.8 + 0.4 * this.random());
      this.checkers.run(work, () => {
        this.ranges.set(from, to);
        let end = this.ranges.get(this.checked);
        for (; end !== undefined; end = this.ranges.get(this.checked)) {
          this.ranges.delete(this.checked);
          this.checked = end;
        }
        if (this.setup.verdicts === 'rows') this.covered = this.checked;
        this.check();
      });
    }
  }

  /** Appends one verdict entry, over the leaves that are checked now. */
  cover(done: Callback): void {
    const to = this.checked;
    if (to === this.covered) return done();
    this.lock.run(ASSUMED.commitMs, () => {
      this.covered = Math.max(this.covered, to);
      done();
    });
  }

  publish(to: number): void {
    for (let [group] = this.groups; group !== undefined && group.end <= to; [group] = this.groups) {
      for (; this.published < group.end; this.published += REQUEST_ITEMS) {
        if (group.at > WARM_UP_MS) this.delays.push(this.clock.now - group.at);
      }
      this.groups.shift();
    }
  }

  oldestPendingMs(): number {
    const oldest = this.requests.find(({ end }) => end > this.published);
    return oldest === undefined ? 0 : this.clock.now - oldest.at;
  }
}

const toMs = (micros: number, count: number): number => (micros * count) / 1_000;

/**
 * Simulates the publish cycles of logs that share a map. Each cycle starts at a multiple of `CYCLE_MS` after the
 * previous cycle has rendered its records; the map may still be inserting those records.
 *
 * @param shared the publisher of all logs; null: each log has its own
 */
function publish(
  { clock, setup, random }: { clock: Clock; setup: Setup; random: () => number },
  logs: readonly Log[],
  shared: Server | null,
  map: Server,
): void {
  const { costs, publishing, verdicts } = setup;
  let rendered = logs.map(() => 0);
  const all = (step: (log: Log, place: number, done: Callback) => void, done: Callback): void => {
    let open = logs.length;
    const one = (): void => {
      open -= 1;
      if (open === 0) done();
    };
    logs.forEach((log, place) => step(log, place, one));
  };
  const cover = (log: Log, _: number, done: Callback): void =>
    verdicts === 'at each cycle' ? log.cover(done) : done();
  const cycle = (): void =>
    all(cover, () => {
      const sizes = logs.map(({ covered }) => covered);
      const added = sizes.map((size, place) => size - rendered[place]!);
      rendered = sizes;
      const cycleMs = shared === null ? ASSUMED.cycleMs : ASSUMED.cycleMs / logs.length;
      const render = (log: Log, place: number, done: Callback): void =>
        (shared ?? log.publisher).run(cycleMs + toMs(costs.publisher, added[place]!), done);
      const show = (): void =>
        clock.after(random() * POLL_MS, () => logs.forEach((log, i) => log.publish(sizes[i]!)));
      const appendSnapshot = (): void =>
        verdicts === 'rows' ? show() : logs[0]!.lock.run(ASSUMED.commitMs, show);
      all(render, () => {
        const leaves = publishing === 'joined' ? sumOf(added, (count) => count) : 0;
        map.run(toMs(ASSUMED.map, leaves), appendSnapshot);
        clock.after(CYCLE_MS - (clock.now % CYCLE_MS), cycle);
      });
    });
  cycle();
}

/** Simulates `rate` proofs per second in all. The same setup and rate give the same result. */
export function simulate(setup: Setup, rate: number) {
  const { seconds = 40, shares, publishing, cores: count } = setup;
  const clock = new Clock();
  const random = generator(1);
  const cores = count === undefined ? null : new Server(clock, null, 'cores', count);
  const logs = shares.map(() => new Log(clock, cores, setup, random));
  const map = new Server(clock, cores, 'map');
  const shared = publishing === 'one' ? new Server(clock, cores, 'publisher') : null;
  for (const together of publishing === 'each' ? logs.map((log) => [log]) : [logs]) {
    publish({ clock, setup, random }, together, shared, map);
  }
  logs.forEach((log, place) => {
    const meanMs = (1_000 * REQUEST_ITEMS) / (rate * shares[place]!);
    const afterNext = (run: Callback): void =>
      clock.after(-Math.log(1 - random()) * meanMs, () => {
        run();
        afterNext(run);
      });
    afterNext(() => log.accept());
    const cover = (): void => log.cover(() => clock.after(CYCLE_MS, cover));
    if (setup.verdicts === 'between cycles') clock.after(CYCLE_MS / 2, cover);
  });
  clock.runUntil(seconds * 1_000);
  const delays = logs.flatMap((log) => log.delays);
  const shareds = [map, shared, cores].filter((server) => server !== null);
  /** The resource with the greatest busy fraction. */
  const busiest = [...logs.flatMap(({ servers }) => servers), ...shareds]
    .map(({ name, busyMs, width }) => ({ name, busy: busyMs / clock.now / width }))
    .reduce((most, one) => (one.busy > most.busy ? one : most));
  return {
    /** Seconds from commit to publication. */
    p50: percentile(delays, 50) / 1_000,
    p99: percentile(delays, 99) / 1_000,
    /** Age in seconds of the oldest accepted proof that is not public at the end. */
    oldestPending: Math.max(...logs.map((log) => log.oldestPendingMs())) / 1_000,
    busiest,
  };
}

/** The greatest rate, to within 3 %, at which no proof has waited for ten seconds after five minutes. */
export function limitOf(setup: Setup): number {
  const keepsUp = (rate: number): boolean =>
    simulate({ ...setup, seconds: 300 }, rate).oldestPending < 10;
  let [low, high] = [0, 4_000];
  while (keepsUp(high)) [low, high] = [high, 2 * high];
  while (high - low > low / 100) {
    const middle = (low + high) / 2;
    if (keepsUp(middle)) low = middle;
    else high = middle;
  }
  return low;
}

/** Puts each tenant, the heaviest first, on the log with the least load. Returns the fraction of the load on each log. */
export function placeTenants(weights: readonly number[], logs: number): number[] {
  const total = sumOf(weights, (weight) => weight);
  const shares = Array<number>(logs).fill(0);
  for (const weight of [...weights].sort((a, b) => b - a)) {
    shares[shares.indexOf(Math.min(...shares))]! += weight / total;
  }
  return shares;
}
