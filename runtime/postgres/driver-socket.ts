import type { Socket } from 'node:net';

/** Header of ReadyForQuery, which completes the start of a session. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5]);

/** Event loop turns after which the driver has written its first message, if it ever does. */
const TURNS_TO_WRITE = 4;

/**
 * Emits `error` and `close` in the same tick, to work around three faults of postgres.js that leave
 * a caller waiting without an error:
 *
 * - Between `error` and `close` it sends statements on the failed connection and loses them.
 * - It reopens a connection that ends without an error before its session is open, immediately and
 *   forever, while the statement waits. Here such an end is an error.
 * - A write that was buffered when a connection ended stays buffered, so the driver never greets the
 *   next connection. Here ungreeted connections end at once, until the buffer is large enough for
 *   the driver to flush it.
 *
 * Call it when handing the socket to the driver.
 */
export function hardenSocket<S extends Socket>(socket: S): S {
  let failure: Error | null = null;
  let isOpen = false;
  let isTakenBack = false;
  socket.on('data', (chunk: Buffer) => {
    isOpen ||= chunk.subarray(-READY.length - 1, -1).equals(READY);
  });

  const emit = socket.emit.bind(socket) as (event: string | symbol, ...args: unknown[]) => boolean;
  socket.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    if (event === 'error') {
      failure ??= args[0] as Error;
      return true;
    }
    if (event !== 'close') return emit(event, ...args);
    if (failure === null && !isOpen && !isTakenBack) failure = endedEarly();
    if (failure === null) return emit('close', false);
    if (socket.listenerCount('error') > 0) emit('error', failure);
    return emit('close', true);
  };

  const before = socket.bytesWritten;
  let turns = 0;
  const expectGreeting = (): void => {
    if (socket.destroyed || socket.bytesWritten > before) return;
    turns += 1;
    if (turns < TURNS_TO_WRITE) setImmediate(expectGreeting);
    else {
      isTakenBack = true;
      socket.destroy();
    }
  };
  setImmediate(expectGreeting);
  return socket;
}

function endedEarly(): Error {
  const error = new Error('the server ended the connection before the session was open');
  return Object.assign(error, { code: 'CONNECTION_CLOSED' });
}
