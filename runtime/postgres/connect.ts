import { connect as connectSocket, type Socket } from 'node:net';
import postgres from 'postgres';
import { TaskWatchdog, type HungError } from '../process/watchdog.js';
import { type Connection, ConnectionPool } from './pool.js';
import { types } from './types.js';

type Client = postgres.Sql<{ bigint: number }>;

/** A pool of connections; closed with `end`. */
export type Sql = { reserve(): Promise<Reserved> } & Client;

/** A connection reserved by one caller until `release`. */
export type Reserved = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes the connection instead, because its state is unknown. */
  destroy(): void;
};

export interface ConnectOptions {
  /** application_name, as shown in pg_stat_activity. */
  application: string;
  /** Connections for single statements, and as many again for transactions. */
  max?: number;
  /** statement_timeout, in milliseconds; 0 means none. */
  statementTimeoutMs?: number;
  /** lock_timeout, in milliseconds; 0 means none. */
  lockTimeoutMs?: number;
  /** idle_in_transaction_session_timeout, in milliseconds; 0 means none. */
  idleInTransactionTimeoutMs?: number;
  connectTimeoutMs?: number;
  /** Longest wait for a free connection, in milliseconds. */
  waitMs?: number;
  /** Closes the pool immediately when it fires, even with statements in flight. */
  signal?: AbortSignal;
  /** A statement without an answer for this long, in milliseconds, is a stall; 0 means never. */
  stallTimeoutMs?: number;
  /** Throws by default, which ends the program: a restart recovers faster than callers time out. */
  onHung?: (error: HungError) => void;
}

/**
 * Every statement of the programs uses an index. Without this, a plan made while a table was empty
 * scans it and stays cached while the table grows. JIT never pays off for statements this short.
 */
const PLANNING = { enable_seqscan: 'off', jit: 'off' };

/** The server enforces the statement timeout; this much later, it is gone and the program exits. */
const STALL_GRACE_MS = 10_000;

/** A statement of postgres.js, with the members that send it. */
interface Query extends Promise<unknown> {
  handler: (query: Query) => void;
  reject: (error: Error) => void;
}

/**
 * A pool in which every connection has a postgres.js client of its own that never reconnects. After
 * a reconnect, that driver resolves a statement that was in flight with an empty result, and runs
 * the rest of a transaction outside of it.
 */
export function connect(url: string, options: ConnectOptions): Sql {
  const { max = 8, waitMs = 10_000, statementTimeoutMs = 30_000, signal } = options;
  const {
    stallTimeoutMs = statementTimeoutMs === 0 ? 0 : statementTimeoutMs + STALL_GRACE_MS,
    onHung = (error) => {
      throw error;
    },
  } = options;
  const settings = {
    max,
    connect_timeout: (options.connectTimeoutMs ?? 5_000) / 1000,
    keep_alive: 30,
    max_lifetime: null,
    types,
    fetch_types: false,
    onnotice: () => undefined,
    connection: {
      application_name: options.application,
      statement_timeout: statementTimeoutMs,
      lock_timeout: options.lockTimeoutMs ?? 10_000,
      idle_in_transaction_session_timeout: options.idleInTransactionTimeoutMs ?? 60_000,
      ...PLANNING,
    },
  };
  // Only builds statements: it never connects.
  const builder = postgres(url, settings);
  const sample = asQuery(builder``);
  const watchdog =
    stallTimeoutMs === 0
      ? null
      : new TaskWatchdog({ what: 'a statement', limitMs: stallTimeoutMs, onHung });

  let opened = 0;
  const open = (): Connection => openConnection(url, settings, builder.options, opened++);
  const statements = new ConnectionPool(open, max, waitMs);
  const transactions = new ConnectionPool(open, max, waitMs);

  /** Passes the statements that `client` makes to `send`. */
  function routed<C extends Client>(
    client: C,
    send: (query: Query, handler: Query['handler']) => void,
    own: Record<string | symbol, unknown>,
  ): C {
    const route = (made: unknown): unknown => {
      if (!(made instanceof sample.constructor)) return made;
      const { handler } = made as Query;
      return Object.assign(made, { handler: (query: Query) => send(query, handler) });
    };
    const unsafe: Client['unsafe'] = (...given) => route(client.unsafe(...given)) as never;
    const members: Record<string | symbol, unknown> = { unsafe, ...own };
    return new Proxy(client, {
      apply: (target, self, given) => route(Reflect.apply(target, self, given)),
      get: (target, name) => members[name] ?? (Reflect.get(target, name) as unknown),
      has: (target, name) => name in members || name in target,
    });
  }

  const watch = (query: Query): void => void watchdog?.watch(() => Promise.allSettled([query]));

  async function sendAnywhere(query: Query): Promise<void> {
    const connection = await statements.take();
    asQuery(connection.client``).handler(query);
    watch(query);
    const giveBack = (): void => statements.giveBack(connection, true);
    query.then(giveBack, giveBack);
  }

  async function reserve(): Promise<Reserved> {
    const connection = await transactions.take();
    let isTaken = true;
    const giveBack = (isSound: boolean): void => {
      if (isTaken) transactions.giveBack(connection, isSound);
      isTaken = false;
    };
    const send = (query: Query, handler: Query['handler']): void => {
      watch(query);
      handler(query);
    };
    return routed(connection.client, send, {
      release: () => giveBack(true),
      destroy: () => giveBack(false),
    }) as unknown as Reserved;
  }

  async function end({ timeout }: { timeout?: number } = {}): Promise<void> {
    await Promise.all([statements.end(timeout), transactions.end(timeout)]);
    watchdog?.stop();
  }

  const cut = (): void => void end({ timeout: 0 });
  if (signal?.aborted === true) cut();
  else signal?.addEventListener('abort', cut, { once: true });
  const send = (query: Query): void =>
    void sendAnywhere(query).catch((error: Error) => query.reject(error));
  return routed(builder, send, { reserve, end }) as Sql;
}

const asQuery = (query: unknown): Query => query as Query;

type Address = Pick<Client['options'], 'host' | 'port' | 'path' | 'ssl'>;

/** @param at counts connections, which alternate between the hosts of the URL */
function openConnection(
  url: string,
  settings: object,
  { host, port, path, ssl }: Address,
  at: number,
): Connection {
  const name = host[at % host.length] ?? 'localhost';
  const address = path ? { path } : { host: name, port: port[at % host.length] ?? 5432 };
  let socket: Socket | null = null;
  const onLost = (): void => {
    connection.isLost = true;
    // Rejects the statement that the driver forgot when it was sent between `error` and `close`.
    void connection.close(0);
  };
  const own = {
    ...settings,
    ...address,
    max: 1,
    // The driver checks the certificate of a server that is addressed by IP against "localhost".
    ...(typeof ssl === 'string' && ssl.startsWith('verify') && { ssl: { host: name } }),
    onclose: onLost,
    socket: () => {
      if (socket !== null) {
        onLost();
        throw Object.assign(new Error('the connection was lost'), { code: 'CONNECTION_CLOSED' });
      }
      // With Nagle's algorithm, a COPY stalls for 44 ms at a time.
      socket = connectSocket({ ...address, noDelay: true });
      return Object.assign(socket, { host: name });
    },
  };
  const client = postgres(url, own) as Client;
  const connection: Connection = {
    client,
    isLost: false,
    close: async (timeout) => {
      await client.end({ timeout });
      // Also one that is still connecting.
      socket?.destroy();
    },
  };
  return connection;
}
