import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { type AddressInfo, isIPv6 } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../process/operator-error.js';
import {
  boundConnections,
  closingOrder,
  createPipelineBound,
  type Exchange,
  HTTP_LIMITS,
  type HttpLimits,
} from './connections.js';

/**
 * Returns the fault of a request that Node's parser accepts, or null. Rejects every request that a
 * proxy in front could read differently, so that proxy and server agree on the end and the host of
 * every request (RFC 9112, 3.2 and 6.1).
 */
export function faultOf(
  request: IncomingMessage,
  maxHeaders: number,
): 'malformed_request' | 'headers_too_large' | null {
  const { rawHeaders, httpVersionMajor, httpVersionMinor } = request;
  if (rawHeaders.length > 2 * maxHeaders) return 'headers_too_large';
  if (httpVersionMajor !== 1) return 'malformed_request';
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]!.length === 4 && rawHeaders[i]!.toLowerCase() === 'host') hosts += 1;
  }
  const isHostMissing = hosts === 0 && httpVersionMinor > 0;
  if (hosts > 1 || isHostMissing) return 'malformed_request';
  const coding = request.headers['transfer-encoding'];
  if (coding === undefined) return null;
  // Rejects `identity, chunked` and chunks in HTTP/1.0, which servers interpret differently.
  const isPlain = coding.toLowerCase() === 'chunked' && httpVersionMinor > 0;
  return isPlain ? null : 'malformed_request';
}

/**
 * The reason why no handler ran: the request was malformed, incomplete or late, or its headers were too
 * large.
 */
export type UnreadReason =
  'malformed_request' | 'incomplete_body' | 'request_timeout' | 'headers_too_large';

export interface UnreadAnswer {
  headers: Record<string, string>;
  body: Uint8Array;
}

export interface ListenOptions {
  host: string;
  /** 0 takes any free port. */
  port: number;
  /** The variable that sets `port`, named in the message when the port is taken. */
  portVariable?: string;
  /** Like `portVariable`, for `host`; LISTEN_ADDRESS by default. */
  hostVariable?: string;
  /** Whether a process of a Node cluster opens its own socket instead of sharing the cluster's. */
  exclusive?: boolean;
  /** After `close` was called, new connections are accepted for this long, for one request each. */
  drainDelayMs?: number;
  limits?: Partial<HttpLimits>;
  /** Headers and body of the response to a request that is rejected before the handler; none by default. */
  answerUnread?: (reason: UnreadReason) => UnreadAnswer;
}

export type HttpServer = Awaited<ReturnType<typeof listen>>;

function explain(error: NodeJS.ErrnoException, options: ListenOptions): Error {
  const { host, port, portVariable = 'the port', hostVariable = 'LISTEN_ADDRESS' } = options;
  const messages: Record<string, string> = {
    EADDRINUSE: `Port ${String(port)} is in use: set ${portVariable} to another port, or to 0 for any free port.`,
    EACCES: `Port ${String(port)} requires privileges: set ${portVariable} to a port above 1023.`,
    EADDRNOTAVAIL: `${host} is not an address of this machine: set ${hostVariable} to a local address.`,
    ENOTFOUND: `${host} is not an address of this machine: set ${hostVariable} to a local address.`,
  };
  const message = messages[error.code ?? ''];
  return message === undefined ? error : new OperatorError(message, { cause: error });
}

const CHECK_EVERY_MS = 1_000;

const UNREAD_STATUS: Record<UnreadReason, number> = {
  malformed_request: 400,
  incomplete_body: 400,
  request_timeout: 408,
  headers_too_large: 431,
};

function reasonOf(code: string, isInBody: boolean): UnreadReason {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 'request_timeout';
    case 'HPE_HEADER_OVERFLOW':
      return 'headers_too_large';
    case 'HPE_INVALID_EOF_STATE':
      return isInBody ? 'incomplete_body' : 'malformed_request';
    default:
      return 'malformed_request';
  }
}

const NOTHING: UnreadAnswer = { headers: {}, body: new Uint8Array() };

function endUnread(
  socket: Duplex,
  reason: UnreadReason,
  answer: ListenOptions['answerUnread'],
): void {
  const status = UNREAD_STATUS[reason];
  const { headers, body } = answer?.(reason) ?? NOTHING;
  const lines = [
    `HTTP/1.1 ${String(status)} ${STATUS_CODES[status] ?? ''}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${String(body.length)}`,
    `Date: ${new Date().toUTCString()}`,
    'Connection: close',
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  socket.end(body, () => socket.destroy());
}

/** Rejects a readable request and ignores whatever follows on its connection. */
function sendRejection(
  response: ServerResponse,
  reason: UnreadReason,
  answer: ListenOptions['answerUnread'],
): void {
  const { headers, body } = answer?.(reason) ?? NOTHING;
  response.writeHead(UNREAD_STATUS[reason], { ...headers, Connection: 'close' });
  response.end(body);
}

const DEFAULT_GRACE_MS = 15_000;

/** A port that a program will use, and the setting that chose it. */
export type PortChoice = Pick<ListenOptions, 'host' | 'port' | 'portVariable' | 'hostVariable'>;

/**
 * Binds all ports at once and releases them, so that a conflict, even between two of them, is
 * reported before anything starts. Returns the bound ports in order.
 */
export async function probePorts(choices: readonly PortChoice[]): Promise<number[]> {
  const probes: HttpServer[] = [];
  try {
    for (const choice of choices) probes.push(await listen(() => undefined, choice));
    return probes.map(({ port }) => port);
  } finally {
    await Promise.all(probes.map((probe) => probe.close()));
  }
}

export async function listen(handler: RequestListener, options: ListenOptions) {
  const limits: HttpLimits = { ...HTTP_LIMITS, ...options.limits };
  const { headersMs, requestMs } = limits;
  const { exclusive = false } = options;
  let closing = false;
  const exchanges = new WeakMap<Duplex, Exchange>();
  const rejected = new WeakSet<Duplex>();
  const onRequest: RequestListener = (request, response) => {
    // Bytes after a rejected request are not parsed as a request.
    if (rejected.has(request.socket)) return;
    exchanges.set(request.socket, { request, response });
    onBegun(request.socket);
    const fault = faultOf(request, limits.headers);
    if (fault !== null) {
      rejected.add(request.socket);
      sendRejection(response, fault, options.answerUnread);
      return;
    }
    // Ends keep-alive, because otherwise the client would send further requests on this connection.
    if (closing) response.setHeader('Connection', 'close');
    handler(request, response);
    if (!response.writableEnded) waiting.add(request.socket, response);
  };
  const waiting = createPipelineBound(limits.pipelined);
  const server = createServer(
    {
      maxHeaderSize: limits.headerBytes,
      // `faultOf` checks the header, so that the client gets a response with the reason.
      requireHostHeader: false,
      headersTimeout: headersMs,
      requestTimeout: requestMs,
      keepAliveTimeout: limits.keepAliveMs,
      connectionsCheckingInterval: Math.min(CHECK_EVERY_MS, headersMs, requestMs),
    },
    onRequest,
  );
  // Ignores unknown expectations, as RFC 9110 (10.1.1) allows.
  server.on('checkExpectation', onRequest);
  server.setTimeout(limits.idleMs);
  // No limit in Node, which would drop the headers beyond it: `faultOf` rejects a request with too many.
  server.maxHeadersCount = 0;
  const onBegun = boundConnections(
    server,
    limits,
    (socket) => closingOrder(socket, exchanges.get(socket), waiting.count(socket)),
    (socket) => waiting.unread(socket),
  );
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const isLate = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
    // After the first error, the parser reports another error for every chunk.
    if (rejected.has(socket)) {
      // The client does not read the response, and the chunks that it sends prevent the idle timeout.
      if (isLate && socket.writableEnded) socket.destroy();
      return;
    }
    rejected.add(socket);
    const last = exchanges.get(socket);
    const open = last !== undefined && !last.response.writableFinished ? last : null;
    const isStarted = open?.response.headersSent === true;
    if (!socket.writable || error.code === 'ECONNRESET' || (isLate && isStarted)) socket.destroy();
    // Part of the response was already written: sends this part, and no error response.
    else if (isStarted) socket.end(() => socket.destroy());
    // The bad bytes follow a complete request, which still gets its own response.
    else if (open?.request.complete === true) open.response.once('finish', () => socket.end());
    else endUnread(socket, reasonOf(error.code ?? '', open !== null), options.answerUnread);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(explain(error, options)));
    server.listen({ host: options.host, port: options.port, exclusive }, resolve);
  });
  server.removeAllListeners('error');
  const { port } = server.address() as AddressInfo;
  const host = isIPv6(options.host) ? `[${options.host}]` : options.host;

  /** After `drainDelayMs`, accepts no new connections and finishes requests in flight, for at most `graceMs`. */
  async function close(graceMs = DEFAULT_GRACE_MS): Promise<void> {
    closing = true;
    const { drainDelayMs = 0 } = options;
    if (drainDelayMs > 0) await sleep(drainDelayMs);
    await new Promise<void>((resolve) => {
      const sweep = setInterval(() => server.closeIdleConnections(), 50);
      const cut = setTimeout(() => server.closeAllConnections(), graceMs);
      server.close(() => {
        clearInterval(sweep);
        clearTimeout(cut);
        resolve();
      });
      server.closeIdleConnections();
    });
  }

  return { url: `http://${host}:${String(port)}`, port, server, close };
}
