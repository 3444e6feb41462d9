import { Socket } from 'node:net';
import postgres from 'postgres';
import { arrayTypes } from './array-types.js';
import { TransactionPool, type Reserved } from './transaction-pool.js';
import { failing, secured, type TlsOptions } from './tls-socket.js';
import { hardenSocket } from './driver-socket.js';

/** A pool of connections; closed with `end`. */
export type Sql = { reserve(): Promise<Reserved> } & postgres.Sql<{ bigint: number }>;

export interface ConnectOptions {
  /** Seen in pg_stat_activity. */
  application: string;
  /** Connections for single statements, and as many again for transactions. */
  max?: number;
  /** Server-side limit of one statement, in milliseconds; 0 means none. */
  statementTimeoutMs?: number;
  /** Server-side limit of the wait for a lock, in milliseconds; 0 means none. */
  lockTimeoutMs?: number;
  /** Server-side limit of a transaction that does nothing, in milliseconds; 0 means none. */
  idleInTransactionTimeoutMs?: number;
  connectTimeoutMs?: number;
  /** Longest wait of a transaction for a free connection, in milliseconds. */
  waitMs?: number;
  /** Closes the pool at once when it fires, whatever is under way. */
  signal?: AbortSignal;
  /** How long an answer may be owed before the connection is cut; longer than any statement may take. */
  silenceMs?: number;
}

/** A bigint column is read as a number; one that does not fit is refused, never rounded. */
function safeInteger(text: unknown): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(`the database holds ${String(text)}, which does not fit a number`);
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
  /** Whether nobody wants connections any more. */
  isOver: () => boolean;
}

type OpenSocket = (address: Address) => Socket | Promise<Socket>;

/**
 * Sends small packets at once: a COPY over TCP otherwise stalls some 44 ms a time. A socket is handed over
 * while it is still connecting, and one that failed before it was secured as one that fails, so that a refused
 * connection takes the driver's ordinary way of errors and retries; were it told of by a rejection,
 * the driver would lose the connection's slot for good.
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
 * Cuts a connection whose server owes an answer and says nothing: it ends its statements in time, so
 * one that does not is gone without a word, and TCP alone would wait for it for many minutes.
 */
function endSilence(socket: Socket, ms: number): void {
  let written = 0;
  socket.on('data', () => {
    written = socket.bytesWritten;
  });
  socket.setTimeout(ms, () => {
    // Without an error of its own: the driver then fails everything that it had sent, and not only
    // what it was reading.
    if (socket.bytesWritten > written) socket.destroy();
  });
}

/**
 * Every statement of the programs finds its rows by an index. Left alone, a plan that was made while
 * a table was empty reads all of it, and stays cached while the table grows. Compiling plans pays
 * for no statement as short as these.
 */
const PLANNING = { enable_seqscan: 'off', jit: 'off' };

/** After an outage the longest pause before the next attempt, in seconds. */
const LONGEST_PAUSE_S = 1;

/** How much longer than its longest statement the server may take to be heard of. */
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
    // It knows them from the start: see `arrayTypes`.
    fetch_types: false,
    onnotice: () => undefined,
    connection: {
      application_name: application,
      statement_timeout: statementTimeoutMs,
      lock_timeout: lockTimeoutMs,
      idle_in_transaction_session_timeout: idleInTransactionTimeoutMs,
      ...PLANNING,
    },
    // The driver reads in the URL what is wanted, and is then told that it has nothing to do with it.
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

/** A client of one connection, which stays closed once that connection is gone. */
function openLine(
  url: string,
  settings: { socket: OpenSocket; types: { bigint: typeof bigint } },
  onLost: () => void,
): postgres.Sql<{ bigint: number }> {
  let lost = false;
  const own = {
    ...settings,
    max: 1,
    // The driver would end it between two statements of a transaction.
    max_lifetime: null,
    onclose: () => {
      lost = true;
      onLost();
    },
    socket: (address: Address) => {
      if (!lost) return settings.socket(address);
      throw Object.assign(new Error('the connection is lost'), { code: 'CONNECTION_CLOSED' });
    },
  };
  return postgres(url, own);
}
