import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Bounds on the resources that unauthenticated clients can use. The bounds hold for the engine and the public API; a
 * proxy in front can only tighten them.
 */
export const HTTP_LIMITS = {
  /**
   * Time for a request's headers, from the connection or the end of the last response, in
   * milliseconds.
   */
  headersMs: 10_000,
  /** Time for the complete request. */
  requestMs: 30_000,
  /**
   * Idle time of a connection; longer than a load balancer's, so that the load balancer closes
   * first.
   */
  keepAliveMs: 65_000,
  /** Time without progress on a connection, for example because its client does not read. */
  idleMs: 120_000,
  /** Bytes of request line and headers together, and of trailers. */
  headerBytes: 16 * 1024,
  /** Headers of a request. More are rejected, not dropped: a dropped header could skip a check. */
  headers: 100,
  connections: 8_192,
  /** Connections of one address that a full server keeps while other addresses connect. */
  connectionsPerAddress: 1_024,
  /** Requests of one connection that wait for their responses. Later requests are not read yet. */
  pipelined: 16,
  /** Bytes of responses in memory, over all connections, that clients have not read. */
  unreadBytes: 128 * 1024 * 1024,
} as const;

export type HttpLimits = { [Name in keyof typeof HTTP_LIMITS]: number };

export interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
}

/**
 * The rank of a connection in a full server, which closes the lowest rank first. 0: the server waits for the
 * first headers; 1: for another request; 2: for the rest of a body, or until the client reads a response. Null
 * while the server processes a request.
 *
 * @param unanswered requests of the connection whose responses are not finished
 */
export function closingOrder(
  socket: Socket,
  exchange: Exchange | undefined,
  unanswered: number,
): number | null {
  if (exchange === undefined) return 0;
  const { request, response } = exchange;
  if (response.writableFinished) return 1;
  if (socket.writableLength > 0) return 2;
  const waitsForBody = !request.complete && request.readableLength === 0;
  return waitsForBody && unanswered <= 1 ? 2 : null;
}

const CHECK_EVERY_MS = 1_000;

/** Number of connections checked per queue: a limit, so that a new connection in a full server costs little. */
const CONNECTIONS_CHECKED = 100;

/**
 * Bounds the connections, and the memory of responses that clients do not read.
 *
 * Once a second, closes the connections that have unread bytes, those with the most first, until at most
 * `unreadBytes` remain: a client that reads a long response byte by byte is never idle.
 *
 * A full server makes room for a new connection by closing another. The server checks the connections whose latest
 * requests are oldest, and closes the connection with the lowest `orderOf`. If all of these are busy (null), it closes
 * the new connection. An address with more than `connectionsPerAddress` loses its own connections first, and can
 * displace no others. This limit applies only in a full server, so that a proxy, whose clients share its address, can
 * use every connection.
 *
 * @returns a function to call when a request begins
 */
export function boundConnections(
  server: Server,
  {
    connections,
    connectionsPerAddress,
    unreadBytes,
  }: Pick<HttpLimits, 'connections' | 'connectionsPerAddress' | 'unreadBytes'>,
  orderOf: (socket: Socket) => number | null,
  unreadOf: (socket: Socket) => number,
): (socket: Socket) => void {
  /** Open connections with their addresses. This map and each queue are in the order of the latest requests. */
  const open = new Map<Socket, string>();
  const queues = new Map<string, Set<Socket>>();
  const overLimit = new Set<Set<Socket>>();

  const add = (socket: Socket, address: string): void => {
    const queue = queues.get(address) ?? new Set();
    open.set(socket, address);
    queues.set(address, queue.add(socket));
    if (queue.size > connectionsPerAddress) overLimit.add(queue);
  };

  const remove = (socket: Socket): void => {
    const address = open.get(socket) ?? '';
    const queue = queues.get(address);
    if (!open.delete(socket) || queue === undefined) return;
    queue.delete(socket);
    if (queue.size <= connectionsPerAddress) overLimit.delete(queue);
    if (queue.size === 0) queues.delete(address);
  };

  const moveToEnd = (socket: Socket): void => {
    const address = open.get(socket);
    const queue = queues.get(address ?? '');
    if (address === undefined || queue === undefined) return;
    open.delete(socket);
    open.set(socket, address);
    queue.delete(socket);
    queue.add(socket);
  };

  const victimIn = (queue: Iterable<Socket>, newest: Socket): Socket | null => {
    const busy: Socket[] = [];
    let victim: Socket | null = null;
    let lowest = Infinity;
    let checked = 0;
    for (const socket of queue) {
      if (socket === newest) continue;
      if (lowest === 0 || checked === CONNECTIONS_CHECKED) break;
      checked += 1;
      const order = orderOf(socket);
      if (order === null) busy.push(socket);
      else if (order < lowest) [victim, lowest] = [socket, order];
    }
    // Busy connections move to the end, so that the next search starts with other connections.
    busy.forEach(moveToEnd);
    return victim;
  };

  const victimFor = (newest: Socket): Socket => {
    const own = queues.get(open.get(newest) ?? '')!;
    for (const queue of overLimit.has(own) ? [own] : [...overLimit, open.keys()]) {
      const victim = victimIn(queue, newest);
      if (victim !== null) return victim;
    }
    return newest;
  };

  server.on('connection', (socket: Socket) => {
    add(socket, socket.remoteAddress ?? '');
    socket.once('close', () => remove(socket));
    if (open.size <= connections) return;
    const victim = victimFor(socket);
    remove(victim);
    victim.destroy();
  });

  const closeUnread = (): void => {
    const unread = [...open.keys()].map((socket) => ({ socket, bytes: unreadOf(socket) }));
    let total = unread.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { socket, bytes } of unread.sort((a, b) => b.bytes - a.bytes)) {
      if (total <= unreadBytes) return;
      total -= bytes;
      socket.destroy();
    }
  };
  const timer = setInterval(closeUnread, CHECK_EVERY_MS).unref();
  server.once('close', () => clearInterval(timer));

  return moveToEnd;
}

/**
 * Bounds the pipelined requests of one connection that wait for their responses: Node would keep
 * reading for as long as a client sends.
 */
export function createPipelineBound(atMost: number) {
  interface Pipeline {
    open: Set<ServerResponse>;
    isHeld: boolean;
  }
  const waiting = new WeakMap<Socket, Pipeline>();
  const hold = (socket: Socket, state: Pipeline): void => {
    if (!state.isHeld) {
      state.isHeld = true;
      // Pauses the socket again, because Node resumes reading after each response and for each body.
      socket.on('resume', () => {
        if (state.open.size >= atMost) socket.pause();
      });
    }
    socket.pause();
  };
  return {
    /** Requests whose responses are not finished. */
    count: (socket: Socket): number => waiting.get(socket)?.open.size ?? 0,
    /** Bytes of responses that the client has not read. */
    unread(socket: Socket): number {
      let bytes = socket.writableLength;
      // Responses that wait for an earlier response are not in the buffer of the socket yet.
      for (const one of waiting.get(socket)?.open ?? []) {
        if (one.socket === null) bytes += one.writableLength;
      }
      return bytes;
    },
    add(socket: Socket, response: ServerResponse): void {
      const known = waiting.get(socket);
      const state = known ?? { open: new Set(), isHeld: false };
      if (known === undefined) waiting.set(socket, state);
      state.open.add(response);
      if (state.open.size >= atMost) hold(socket, state);
      response.once('close', () => {
        state.open.delete(response);
        if (state.isHeld && state.open.size === atMost - 1) socket.resume();
      });
    },
  };
}
