import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Keeps the number of connections bounded. When it is reached, those go on which nobody asks anything
 * at the moment, so that whoever hoards idle ones keeps nobody out; only when all of them are in use is
 * a new one hung up on.
 */
export function boundConnections(server: Server, atMost: number): void {
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    if (open.size <= atMost) return;
    server.closeIdleConnections();
    let left = 0;
    for (const one of open) if (!one.destroyed) left += 1;
    if (left > atMost) socket.destroy();
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
