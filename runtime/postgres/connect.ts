import { Socket } from 'node:net';
import postgres from 'postgres';
import { arrayTypes } from './array-types.js';
import { TransactionPool, type Reserved } from './transaction-pool.js';
import { failing, secured, type TlsOptions } from './tls-socket.js';
import { hardenSocket } from './driver-socket.js';

/** A pool of connections; closed with `end`. */
export type Sql = { reserve(): Promise<Reserved> } & postgres.Sql<{ bigint: number }>;

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
  /** Longest wait of a transaction for a free connection, in milliseconds. */
  waitMs?: number;
  /** Closes the pool immediately when it fires, even with statements in flight. */
  signal?: AbortSignal;
  /** Time without a response after which a connection is cut; longer than the longest statement. */
  silenceMs?: number;
}

/** Decodes a bigint as a number; throws when it is not a safe integer, never rounds. */
function safeInteger(text: unknown): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(
      `the database holds ${String(text)}, which exceeds the safe integer range`,
    );
  }
  return value;
}

const bigint: postgres.PostgresType = {
  to: 20,
  from: [20],
  serialize: String,
  parse: safeInteger,
};

const types: { bigint: typeof bigint } = { ...arrayTypes(safeInteger), bigint };

interface Address {
  host: string[];
  port: number[];
  path: string | false;
}

interface Line {
  silenceMs: number;
  connectTimeoutMs: number;
  tls: TlsOptions;
  /** Whether the pool no longer needs connections. */
  isOver: () => boolean;
}

type OpenSocket = (address: Address) => Socket | Promise<Socket>;

/**
 * Disables Nagle's algorithm: a COPY over TCP otherwise stalls for 44 ms at a time. Always returns
 * a socket, if necessary one that fails later: a refused connection then takes the driver's normal
 * error and retry path. On a rejection, postgres.js would lose the connection slot for good.
 */
function promptSocket({ silenceMs, connectTimeoutMs, tls, isOver }: Line): OpenSocket {
  let attempt = 0;
  const given = (socket: Socket): Socket => {
    if (silenceMs > 0) endSilence(socket, silenceMs);
    return hardenSocket(socket);
  };
  return ({ host, port, path }) => {
    const socket = new Socket();
    socket.setNoDelay(true);
    const index = attempt++ % host.length;
    const name = host[index] ?? 'localhost';
    if (path === false) socket.connect(port[index] ?? 5432, name);
    else socket.connect(path);
    if (tls.ssl === false) return given(socket);
    return secured(socket, name, tls, connectTimeoutMs).then(
      (secure) => {
        if (!isOver()) return given(secure);
        secure.destroy();
        return failing(ended());
      },
      (error: unknown) => hardenSocket(failing(error)),
    );
  };
}

const ended = (): Error =>
  Object.assign(new Error('the pool is closed'), { code: 'CONNECTION_ENDED' });

/**
 * Cuts a connection whose server owes a response but is silent. The server enforces statement
 * timeouts, so silence means it is gone, and TCP alone would notice only after many minutes.
 */
function endSilence(socket: Socket, ms: number): void {
  let written = 0;
  socket.on('data', () => {
    written = socket.bytesWritten;
  });
  socket.setTimeout(ms, () => {
    // Without an error, so that the driver fails every statement in flight and not only the current
    // one.
    if (socket.bytesWritten > written) socket.destroy();
  });
}

/**
 * Every statement of the programs uses an index. Without this, a plan made while a table was empty
 * scans it and stays cached while the table grows. JIT never pays off for statements this short.
 */
const PLANNING = { enable_seqscan: 'off', jit: 'off' };

/** Longest delay before reconnecting after an outage, in seconds. */
const LONGEST_PAUSE_S = 1;

/** Grace beyond the longest statement before a silent server is cut. */
const SILENCE_GRACE_MS = 10_000;

export function connect(url: string, options: ConnectOptions): Sql {
  const {
    application,
    max = 8,
    statementTimeoutMs = 30_000,
    lockTimeoutMs = 10_000,
    idleInTransactionTimeoutMs = 60_000,
    connectTimeoutMs = 5_000,
    waitMs = 10_000,
    silenceMs = statementTimeoutMs === 0 ? 0 : statementTimeoutMs + SILENCE_GRACE_MS,
  } = options;
  const settings = {
    max,
    connect_timeout: connectTimeoutMs / 1000,
    keep_alive: 30,
    backoff: (retries: number) => Math.min(0.05 * 2 ** retries, LONGEST_PAUSE_S),
    types,
    // Types are built in: see `arrayTypes`.
    fetch_types: false,
    onnotice: () => undefined,
    connection: {
      application_name: application,
      statement_timeout: statementTimeoutMs,
      lock_timeout: lockTimeoutMs,
      idle_in_transaction_session_timeout: idleInTransactionTimeoutMs,
      ...PLANNING,
    },
    // Takes TLS options from the URL, and disables the driver's own TLS.
    socket: promptSocket({
      silenceMs,
      connectTimeoutMs,
      tls: postgres(url, { max: 1 }).options as unknown as TlsOptions,
      isOver: () => isOver,
    }),
    ssl: false,
  };
  let isOver = false;
  const sql = postgres(url, settings);
  const reservations = new TransactionPool(
    (onLost) => openLine(url, settings, onLost),
    max,
    waitMs,
  );
  const endStatements = sql.end.bind(sql);
  const pool = Object.assign(sql, {
    reserve: () => reservations.reserve(),
    end: async (ending?: { timeout?: number }) => {
      isOver = true;
      await Promise.all([reservations.end(ending), endStatements(ending)]);
    },
  });
  const cut = (): void => void pool.end({ timeout: 0 });
  if (options.signal?.aborted === true) cut();
  else options.signal?.addEventListener('abort', cut, { once: true });
  return pool;
}

/** A client with one connection, which does not reconnect. */
function openLine(
  url: string,
  settings: { socket: OpenSocket; types: { bigint: typeof bigint } },
  onLost: () => void,
): postgres.Sql<{ bigint: number }> {
  let lost = false;
  const own = {
    ...settings,
    max: 1,
    // The driver would end the connection between two statements of a transaction.
    max_lifetime: null,
    onclose: () => {
      lost = true;
      onLost();
    },
    socket: (address: Address) => {
      if (!lost) return settings.socket(address);
      throw Object.assign(new Error('the connection was lost'), { code: 'CONNECTION_CLOSED' });
    },
  };
  return postgres(url, own);
}
