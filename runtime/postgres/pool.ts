export interface Pooled {
  isLost: boolean;
  /** Ends the session; unanswered statements fail after `timeout` seconds. */
  close(timeout: number): Promise<void>;
}

/** A pool of connections, each used by one caller at a time. A lost connection is discarded. */
export class ConnectionPool<Connection extends Pooled> {
  private readonly all = new Set<Connection>();
  private readonly idle: Connection[] = [];
  private readonly waiting = new Set<(given: Connection | Error) => void>();
  private ending: Promise<void> | null = null;
  private onAllBack: () => void = () => undefined;

  constructor(
    private readonly open: () => Connection,
    private readonly max: number,
    private readonly waitMs: number,
  ) {}

  /** @throws Error `POOL_TIMEOUT` when no connection is free within `waitMs` */
  async take(): Promise<Connection> {
    if (this.ending !== null) throw poolEnded();
    for (let free = this.idle.pop(); free !== undefined; free = this.idle.pop()) {
      if (!free.isLost) return free;
      void this.discard(free);
    }
    return this.all.size < this.max ? this.openOne() : this.nextFree();
  }

  giveBack(connection: Connection, isSound: boolean): void {
    const isKept = isSound && !connection.isLost && this.ending === null;
    if (!isKept) void this.discard(connection);
    const [next] = this.waiting;
    if (next !== undefined) next(isKept ? connection : this.openOne());
    else if (isKept) this.idle.push(connection);
  }

  /** Waits for connections in use, at most `timeout` seconds if given, and closes all of them. */
  end(timeout?: number): Promise<void> {
    return (this.ending ??= this.endAll(timeout));
  }

  private async endAll(timeout: number | undefined): Promise<void> {
    for (const serve of this.waiting) serve(poolEnded());
    const unused = this.idle.splice(0).map((connection) => this.discard(connection, 1));
    if (this.all.size > 0) {
      const allBack = new Promise<void>((resolve) => (this.onAllBack = resolve));
      const timer = timeout === undefined ? null : setTimeout(this.onAllBack, timeout * 1000);
      await allBack;
      if (timer !== null) clearTimeout(timer);
    }
    await Promise.all([...unused, ...[...this.all].map((connection) => this.discard(connection))]);
  }

  private openOne(): Connection {
    const connection = this.open();
    this.all.add(connection);
    return connection;
  }

  private nextFree(): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const serve = (given: Connection | Error): void => {
        clearTimeout(timer);
        this.waiting.delete(serve);
        if (given instanceof Error) reject(given);
        else resolve(given);
      };
      const timer = setTimeout(() => serve(poolTimeout(this.waitMs)), this.waitMs);
      this.waiting.add(serve);
    });
  }

  private discard(connection: Connection, timeout = 0): Promise<void> {
    this.all.delete(connection);
    if (this.all.size === 0) this.onAllBack();
    return connection.close(timeout);
  }
}

function poolTimeout(ms: number): Error {
  const message = `no pooled connection became available within ${String(ms)} ms`;
  return Object.assign(new Error(message), { code: 'POOL_TIMEOUT' });
}

function poolEnded(): Error {
  return Object.assign(new Error('the pool is closed'), { code: 'CONNECTION_ENDED' });
}
