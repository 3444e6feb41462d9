import type postgres from 'postgres';

type Client = postgres.Sql<{ bigint: number }>;

/** A connection reserved by one caller until `release`. */
export type Reserved = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes the connection instead, because its state is unknown. */
  destroy(): void;
};

/**
 * Opens a client with one connection. When that connection is lost, the client must call `onLost`
 * and never reconnect.
 */
export type OpenLine = (onLost: () => void) => Client;

interface Connection {
  client: Client;
  openedAt: number;
  lost: boolean;
}

/** The driver's lifetime for its other connections. */
const LIFETIME_MS = 45 * 60_000;

/**
 * The connections for transactions. Replaces the driver's `reserve`, which has three faults: a
 * reservation that fails while connecting stays in the driver's queue and permanently takes the
 * next free connection; a statement on a lost reserved connection throws where no caller can catch
 * it, which ends the process; and after a reconnect, that statement runs outside its transaction.
 * Here a lost connection never reconnects, so later statements on it fail.
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
   * Reserves a connection; waits when `max` are taken. Does not connect yet.
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

  /** Waits for reserved connections, at most `timeout` seconds if given, and closes all of them. */
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
      // A reserved connection stays counted until it is released; until then it rejects every
      // statement.
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
      // Hides the members that distinguish a pool from a transaction: its holder must not open
      // another.
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
  const message = `no pooled connection became available within ${String(ms)} ms`;
  return Object.assign(new Error(message), { code: 'POOL_TIMEOUT' });
}

function poolEnded(): Error {
  return Object.assign(new Error('the pool is closed'), { code: 'CONNECTION_ENDED' });
}
