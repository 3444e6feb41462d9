import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { HttpLimits } from './http-limits.js';

/** The last request of a connection and its answer. */
export interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
}

/** A scan looks at every connection, so each closes a hundredth of them. */
const SCANS_TO_CLOSE_ALL = 100;

/**
 * Bounds the number of connections. A full server makes room for a new connection: it closes the
 * oldest connections that have sent no complete headers, and if there are none, the oldest idle ones.
 * Addresses with more than `connectionsPerAddress` lose theirs first, also requests whose bodies are
 * incomplete, and take no place from others. The limit counts only in a full server, so that a proxy,
 * whose clients all have its address, can use every connection.
 */
export function boundConnections(
  server: Server,
  { connections, connectionsPerAddress }: Pick<HttpLimits, 'connections' | 'connectionsPerAddress'>,
  lastExchange: (socket: Socket) => Exchange | undefined,
): void {
  /** With their addresses, oldest first. */
  const open = new Map<Socket, string>();
  const counts = new Map<string, number>();
  const isOverLimit = (address: string): boolean =>
    (counts.get(address) ?? 0) > connectionsPerAddress;

  const forget = (socket: Socket, address: string): void => {
    if (!open.delete(socket)) return;
    const left = (counts.get(address) ?? 0) - 1;
    if (left > 0) counts.set(address, left);
    else counts.delete(address);
  };

  /** Lower closes first; null is never closed. */
  const priorityOf = (
    exchange: Exchange | undefined,
    isOver: boolean,
    isNewestOver: boolean,
  ): number | null => {
    if (isNewestOver && !isOver) return null;
    if (exchange === undefined) return isOver ? 0 : 3;
    if (exchange.response.writableFinished) return isOver ? 1 : 4;
    return isOver && !isNewestOver && !exchange.request.complete ? 2 : null;
  };

  const victimsFor = (newest: Socket, address: string): Socket[] => {
    const isNewestOver = isOverLimit(address);
    const byPriority: Socket[][] = [[], [], [], [], []];
    for (const [socket, from] of open) {
      if (socket === newest) continue;
      const priority = priorityOf(lastExchange(socket), isOverLimit(from), isNewestOver);
      if (priority !== null) byPriority[priority]!.push(socket);
    }
    const first = byPriority.find((sockets) => sockets.length > 0) ?? [newest];
    return first.slice(0, Math.ceil(connections / SCANS_TO_CLOSE_ALL));
  };

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? '';
    open.set(socket, address);
    counts.set(address, (counts.get(address) ?? 0) + 1);
    socket.once('close', () => forget(socket, address));
    if (open.size <= connections) return;
    for (const victim of victimsFor(socket, address)) {
      forget(victim, open.get(victim) ?? '');
      victim.destroy();
    }
  });
}

/**
 * Keeps the number of requests bounded that one connection has sent and that wait for their answers:
 * Node would read on for as long as a client goes on sending.
 */
export function createPipelineBound(atMost: number): {
  add(socket: Socket, response: ServerResponse): void;
} {
  const waiting = new WeakMap<Socket, { open: number; isHeld: boolean }>();
  const hold = (socket: Socket, state: { open: number; isHeld: boolean }): void => {
    if (!state.isHeld) {
      state.isHeld = true;
      // Node goes on reading whenever an answer is done or a body wanted; each time it is stopped anew.
      socket.on('resume', () => {
        if (state.open >= atMost) socket.pause();
      });
    }
    socket.pause();
  };
  return {
    add(socket, response) {
      const known = waiting.get(socket);
      const state = known ?? { open: 0, isHeld: false };
      if (known === undefined) waiting.set(socket, state);
      state.open += 1;
      if (state.open >= atMost) hold(socket, state);
      response.once('close', () => {
        state.open -= 1;
        if (state.isHeld && state.open === atMost - 1) socket.resume();
      });
    },
  };
}
