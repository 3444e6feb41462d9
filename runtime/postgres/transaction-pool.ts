import type postgres from 'postgres';

type Client = postgres.Sql<{ bigint: number }>;

/** A connection that one caller has to itself, until it gives it back with `release`. */
export type Reserved = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes it instead: nobody knows what state it is in. */
  destroy(): void;
};

/**
 * Opens a client of one connection. Once that connection is gone, the client must never open
 * another, and tell `onLost`.
 */
export type OpenLine = (onLost: () => void) => Client;

interface Connection {
  client: Client;
  openedAt: number;
  lost: boolean;
}

/** As the driver has it for its other connections. */
const LIFETIME_MS = 45 * 60_000;

/**
 * The connections of transactions. The driver's own `reserve` is not used, for three faults of it:
 * a reservation that was refused while connecting stays in the driver's queue, and takes the next
 * free connection with it for good; a statement on a reserved connection that is gone throws where
 * nobody can catch it, which ends the process; and if the driver has reconnected meanwhile, that
 * statement runs outside its transaction. Here a connection that is lost is never opened again, so
 * whatever is still asked of it fails.
 */
export class TransactionPool {
  private readonly lines = new Set<Connection>();
  private readonly idle: Connection[] = [];
  private readonly waiting = new Set<{
    serve: (line: Connection) => void;
    refuse: (error: Error) => void;
  }>();
  private ending: Promise<void> | null = null;
  private onAllBack: () => void = () => undefined;

  constructor(
    private readonly open: OpenLine,
    private readonly max: number,
    private readonly waitMs: number,
    private readonly lifetimeMs = LIFETIME_MS,
  ) {}

  /**
   * A connection of the caller's own; waits for one when `max` are taken. Does not connect yet.
   *
   * @throws Error `POOL_TIMEOUT` when none is free within `waitMs`
   */
  async reserve(): Promise<Reserved> {
    if (this.ending !== null) throw poolEnded();
    const free = this.idle.pop() ?? (this.lines.size < this.max ? this.openLine() : null);
    if (free !== null) return this.reserved(free);
    return this.reserved(await this.turn());
  }

  private turn(): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const waiter = {
        serve: (line: Connection): void => {
          clearTimeout(timer);
          resolve(line);
        },
        refuse: (error: Error): void => {
          clearTimeout(timer);
          reject(error);
        },
      };
      const timer = setTimeout(() => {
        this.waiting.delete(waiter);
        reject(poolTimeout(this.waitMs));
      }, this.waitMs);
      this.waiting.add(waiter);
    });
  }

  private nextWaiting() {
    const [next] = this.waiting;
    if (next !== undefined) this.waiting.delete(next);
    return next;
  }

  /** Waits for what is taken, at most `timeout` seconds if given, and closes every connection. */
  end(options: { timeout?: number | undefined } = {}): Promise<void> {
    this.ending ??= this.endAll(options.timeout);
    return this.ending;
  }

  private async endAll(timeout: number | undefined): Promise<void> {
    for (let next = this.nextWaiting(); next !== undefined; next = this.nextWaiting()) {
      next.refuse(poolEnded());
    }
    const unused = Promise.all(this.idle.splice(0).map((line) => this.close(line)));
    if (this.lines.size > 0) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.onAllBack = resolve;
        if (timeout !== undefined) timer = setTimeout(resolve, timeout * 1000);
      });
      clearTimeout(timer);
    }
    await Promise.all([unused, ...[...this.lines].map((line) => this.close(line, 0))]);
  }

  private openLine(): Connection {
    const onLost = (): void => {
      line.lost = true;
      const at = this.idle.indexOf(line);
      if (at >= 0) this.idle.splice(at, 1);
      // One that is taken stays counted until it is given back; whatever it is asked now, it refuses.
      void (at >= 0 ? this.close(line) : line.client.end({ timeout: 0 }));
    };
    const line: Connection = { client: this.open(onLost), openedAt: Date.now(), lost: false };
    this.lines.add(line);
    return line;
  }

  private reserved(line: Connection): Reserved {
    let taken = true;
    const giveBack = (sound: boolean): void => {
      if (!taken) return;
      taken = false;
      const old = Date.now() - line.openedAt >= this.lifetimeMs;
      const keep = sound && !line.lost && !old && this.ending === null;
      if (!keep) void this.close(line);
      const next = this.nextWaiting();
      if (next !== undefined) next.serve(keep ? line : this.openLine());
      else if (keep) this.idle.push(line);
    };
    const own: Record<string | symbol, unknown> = {
      release: () => giveBack(true),
      destroy: () => giveBack(false),
    };
    return new Proxy(line.client, {
      get: (client, name) => own[name] ?? (Reflect.get(client, name) as unknown),
      // What tells a transaction from a pool: who holds one must never open another beside it.
      has: (client, name) => name in own || name in client,
    }) as unknown as Reserved;
  }

  private async close(line: Connection, timeout = 1): Promise<void> {
    this.lines.delete(line);
    if (this.lines.size === 0) this.onAllBack();
    await line.client.end({ timeout });
  }
}

function poolTimeout(ms: number): Error {
  const message = `no connection of the pool became free within ${String(ms)} ms`;
  return Object.assign(new Error(message), { code: 'POOL_TIMEOUT' });
}

function poolEnded(): Error {
  return Object.assign(new Error('the pool is closed'), { code: 'CONNECTION_ENDED' });
}
