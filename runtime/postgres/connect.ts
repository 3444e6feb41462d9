import { connect as connectSocket, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { TaskWatchdog, type StallError } from '../ops/health.js';
import { isLoginRejected } from './hosts.js';
import { ConnectionPool, type Pooled } from './pool.js';
import { types } from './types.js';

type Client = postgres.Sql<{ bigint: number }>;

/** A pool of connections; closed with `end`. */
export type Sql = {
  reserve(): Promise<Reserved>;
  /**
   * Calls `onNotify` with the payload of each notification of `channel`, on a separate connection,
   * which is opened again after a loss. Notifications in between are lost, and other database roles
   * can send notifications: callers must treat notifications as hints.
   *
   * @param onListening called whenever such a connection begins to receive
   */
  onNotification(
    channel: string,
    onNotify: (payload: string) => void,
    onListening?: () => void,
  ): void;
} & Client;

/** A connection reserved by one caller until `release`. */
export type Reserved = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes the connection instead of releasing it, because its state is unknown. */
  destroy(): void;
};

export interface ConnectOptions {
  /** application_name, as shown in pg_stat_activity. */
  application: string;
  /** Maximum number of connections for single statements; transactions have a pool of the same size. */
  max?: number;
  /** statement_timeout, in milliseconds; 0 means none. */
  statementTimeoutMs?: number;
  /** lock_timeout, in milliseconds; 0 means none. */
  lockTimeoutMs?: number;
  /** idle_in_transaction_session_timeout, in milliseconds. */
  idleTransactionMs?: number;
  connectTimeoutMs?: number;
  /** Whether to accept a standby although the URL has several hosts; by default, the pool then skips standbys. */
  acceptsStandby?: boolean;
  /** Longest wait for a free connection, in milliseconds. */
  waitMs?: number;
  /** When this signal aborts, the pool closes immediately, even with statements in flight. */
  signal?: AbortSignal;
  /** A statement without an answer for this long, in milliseconds, is a stall; 0 means never. */
  stallTimeoutMs?: number;
  /** Milliseconds within which the connection for notifications must answer; otherwise it is opened again. */
  listenProbeMs?: number;
  /** Called on a stall. By default ends the program: a restart recovers faster than callers time out. */
  onStall?: (error: StallError) => void;
}

/**
 * Every statement of the programs can use an index. With sequential scans allowed, a plan made for an
 * empty table would scan the table, and stay cached while the table grows. JIT compilation takes longer
 * than it saves for such short statements.
 */
const PLANNING = { enable_seqscan: 'off', jit: 'off' };

/**
 * With another value, set for a role or a database, programs would misread times and bytes, or read rows from before
 * they got a lock.
 */
export const SESSION = {
  datestyle: 'ISO',
  bytea_output: 'hex',
  standard_conforming_strings: 'on',
  array_nulls: 'on',
  default_transaction_isolation: 'read committed' as const,
};

/** Time after the server's own statement timeout at which the program gives up and exits. */
const STALL_GRACE_MS = 10_000;
/** Pause before a lost connection for notifications is opened again. */
const LISTEN_AGAIN_MS = 1_000;

/** A statement of postgres.js, with its internal members that send it. */
interface Query extends Promise<unknown> {
  handler: (query: Query) => void;
  reject: (error: Error) => void;
}

/**
 * A pool in which every connection has a separate postgres.js client, which never reconnects. After a reconnect,
 * postgres.js would resolve a statement in flight with an empty result, and run the rest of a transaction outside of
 * the transaction.
 */
export function connect(url: string, options: ConnectOptions): Sql {
  const { max = 8, waitMs = 10_000, statementTimeoutMs = 30_000, signal } = options;
  const {
    listenProbeMs = 10_000,
    stallTimeoutMs = statementTimeoutMs === 0 ? 0 : statementTimeoutMs + STALL_GRACE_MS,
    onStall = (error) => {
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
      idle_in_transaction_session_timeout: options.idleTransactionMs ?? 60_000,
      ...PLANNING,
      ...SESSION,
    },
  };
  // This client only builds statements and never connects.
  const builder = postgres(url, settings);
  const Statement = builder``.constructor as new () => unknown;
  const isQuery = (made: unknown): made is Query => made instanceof Statement;
  const watchdog =
    stallTimeoutMs === 0
      ? null
      : new TaskWatchdog({ task: 'a statement', limitMs: stallTimeoutMs, onStall });

  const { options: address } = builder;
  /** Index of the URL's host to connect to next; a failed check of a new connection increments it. */
  let hostIndex = 0;
  const openWith = (driver: object): Connection => openConnection(url, driver, address, hostIndex);
  const open = (): Connection => openWith(settings);
  const statements = new ConnectionPool(open, max, waitMs);
  const transactions = new ConnectionPool(open, max, waitMs);

  function sendOver(connection: Connection, query: Query, handler: Query['handler']): void {
    connection.unanswered.add(query);
    handler(query);
    // A session that began while the database was read-only stays read-only after the reset.
    query.catch(({ code }: { code?: unknown }) => {
      connection.isLost ||= code === '25006';
    });
    const answered = Promise.allSettled([query]);
    void answered.then(() => connection.unanswered.delete(query));
    void watchdog?.watch(() => answered);
  }

  const over = (connection: Connection, own: Record<string, unknown> = {}): Client =>
    routed(connection.client, isQuery, sendOver.bind(null, connection), own);

  /** With several hosts, no statement is sent before this check, so none fails because a host is down or a standby. */
  async function check(connection: Connection): Promise<void> {
    if (connection.isChecked || address.host.length === 1) return;
    try {
      const [row] = await over(connection)<{ is: boolean }[]>`select pg_is_in_recovery() as is`;
      if (row?.is === true && options.acceptsStandby !== true)
        throw connectionLost(`${connection.host} is a standby`);
      connection.isChecked = true;
    } catch (error) {
      if (hostIndex === connection.hostIndex) hostIndex += 1;
      throw error;
    }
  }

  /** Takes a connection to the first host that passes the check. */
  async function takeChecked(pool: ConnectionPool<Connection>): Promise<Connection> {
    const failures: (Error & { code?: unknown })[] = [];
    for (;;) {
      const connection = await pool.take();
      try {
        await check(connection);
        return connection;
      } catch (error) {
        pool.giveBack(connection, false);
        failures.push(error as Error);
        if (failures.length < address.host.length) continue;
        const message = failures.map((one) => one.message).join('; ');
        const codes = failures.map((one) => one.code);
        // Prefers a rejected login, which the operator must correct, to the failures of other hosts.
        const code = codes.find((one) => isLoginRejected(String(one))) ?? codes[0];
        throw Object.assign(new Error(message, { cause: error }), { code });
      }
    }
  }

  async function sendAnywhere(query: Query): Promise<void> {
    const connection = await takeChecked(statements);
    sendOver(connection, query, (connection.client`` as unknown as Query).handler);
    const giveBack = (): void => statements.giveBack(connection, true);
    query.then(giveBack, giveBack);
  }

  async function reserve(): Promise<Reserved> {
    const connection = await takeChecked(transactions);
    let isTaken = true;
    const giveBack = (isSound: boolean): void => {
      if (isTaken) transactions.giveBack(connection, isSound);
      isTaken = false;
    };
    return over(connection, {
      release: () => giveBack(true),
      destroy: () => giveBack(false),
    }) as unknown as Reserved;
  }

  const ended = new AbortController();
  const onNotification: Sql['onNotification'] = (channel, onNotify, onListening) => {
    const listening = {
      ...settings,
      onnotify: (_: string, payload: string) => onNotify(payload),
    };
    const openListener = (): Connection => openWith(listening);
    const listen = (connection: Connection): Promise<unknown> =>
      check(connection).then(() => connection.client`listen ${builder(channel)}`);
    void keepListening(openListener, listen, listenProbeMs, ended.signal, onListening);
  };

  async function end({ timeout }: { timeout?: number } = {}): Promise<void> {
    ended.abort();
    await Promise.all([statements.end(timeout), transactions.end(timeout)]);
    watchdog?.stop();
  }

  const cut = (): void => void end({ timeout: 0 });
  if (signal?.aborted === true) cut();
  else signal?.addEventListener('abort', cut, { once: true });
  const send = (query: Query): void =>
    void sendAnywhere(query).catch((error: Error) => query.reject(error));
  return routed(builder, isQuery, send, { reserve, end, onNotification }) as Sql;
}

/** Wraps `client` so that each statement goes to `send`, with the handler that would have sent the statement. */
function routed<C extends Client>(
  client: C,
  isQuery: (made: unknown) => made is Query,
  send: (query: Query, handler: Query['handler']) => void,
  own: Record<string | symbol, unknown>,
): C {
  const route = (made: unknown): unknown => {
    if (!isQuery(made)) return made;
    const { handler } = made;
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

/** Listens on a channel until the signal fires; after a connection loss, opens another connection. */
async function keepListening(
  open: () => Connection,
  listen: (connection: Connection) => Promise<unknown>,
  probeMs: number,
  signal: AbortSignal,
  onListening?: () => void,
): Promise<void> {
  while (!signal.aborted) {
    const connection = open();
    const close = (): void => void connection.close(0);
    signal.addEventListener('abort', close);
    // The statement fails while the server is unreachable. After a lost connection the driver may never
    // settle the statement.
    const listened = listen(connection).then(() => {
      onListening?.();
      return connection.lost;
    });
    await Promise.race([listened, untilSilent(connection, probeMs)]).catch(() => undefined);
    close();
    signal.removeEventListener('abort', close);
    await sleep(LISTEN_AGAIN_MS, undefined, { signal }).catch(() => undefined);
  }
}

export async function withPool<T>(
  url: string,
  options: ConnectOptions,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  const sql = connect(url, options);
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

function openConnection(
  url: string,
  settings: object,
  { host, port, path, ssl }: Pick<Client['options'], 'host' | 'port' | 'path' | 'ssl'>,
  hostIndex: number,
): Connection {
  const at = hostIndex % host.length;
  const name = host[at] ?? 'localhost';
  const address = path ? { path } : { host: name, port: port[at] ?? 5432 };
  let socket: Socket | null = null;
  let reportLoss: () => void = () => undefined;
  const onError = (): void => {
    connection.isLost = true;
  };
  const onLost = (): void => {
    onError();
    reportLoss();
    void connection.close(0);
  };
  const own = {
    ...settings,
    ...address,
    // The driver only names it in its errors; the address of a TLS socket would be undefined:undefined.
    path: path || `${name}:${String(port[at])}`,
    max: 1,
    // Names the host: for an IP address the driver would check the certificate against "localhost".
    ...(typeof ssl === 'string' && ssl.startsWith('verify') && { ssl: { host: name } }),
    onclose: onLost,
    socket: () => {
      if (socket !== null) {
        onLost();
        throw connectionLost();
      }
      // noDelay, because with Nagle's algorithm a COPY stalls for 44 ms at a time.
      socket = connectSocket({ ...address, noDelay: true });
      // This handler runs before the driver rejects the statement, because the caller may repeat the statement at once.
      socket.once('error', onError);
      // The driver sends this name in the TLS handshake.
      return Object.assign(socket, { host: name });
    },
  };
  const client = postgres(url, own) as Client;
  const connection: Connection = {
    client,
    host: name,
    hostIndex,
    isChecked: false,
    isLost: false,
    lost: new Promise((resolve) => (reportLoss = resolve)),
    unanswered: new Set(),
    close: async (timeout) => {
      await client.end({ timeout });
      // Destroys a socket that is still connecting, too.
      socket?.destroy();
      // The driver never settles some statements that were sent while it lost the connection.
      for (const query of connection.unanswered) query.reject(connectionLost());
    },
  };
  return connection;
}

/**
 * Resolves when the connection is lost, or leaves a statement unanswered for `probeMs`: after a network failure,
 * TCP may report the loss only minutes later.
 */
async function untilSilent(connection: Connection, probeMs: number): Promise<void> {
  let answers = true;
  while (answers && !connection.isLost) {
    answers = false;
    connection.client`select`.then(
      () => (answers = true),
      () => undefined,
    );
    await Promise.race([sleep(probeMs, undefined, { ref: false }), connection.lost]);
  }
}

/** A client with one connection, which opens at the first statement and never reconnects. */
interface Connection extends Pooled {
  client: Client;
  host: string;
  hostIndex: number;
  /** Whether the check of a connection to one of several hosts has passed. */
  isChecked: boolean;
  lost: Promise<void>;
  unanswered: Set<Query>;
}

function connectionLost(message = 'the connection was lost'): Error {
  return Object.assign(new Error(message), { code: 'CONNECTION_CLOSED' });
}
