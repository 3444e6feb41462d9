import type { Socket } from 'node:net';

/** What a session's start ends with, and nothing else before it is open: ReadyForQuery, by its head. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5]);

/** After so many turns the driver has written the first message of a connection, if it ever does. */
const TURNS_TO_WRITE = 4;

/**
 * Makes of a socket one whose end the driver hears of in one go, for three faults of it, all of
 * which leave somebody waiting for ever or for long, and without a word:
 *
 * - Between `error` and `close` it goes on sending on the connection that failed, and forgets what it
 *   sent: no statement of that moment is ever answered. Here both come in the same instant.
 * - A connection that is ended before its session is open, without an error, it opens again at once
 *   and without end, while the statement waits. Here such an end is an error.
 * - What it was about to write when the connection ended stays where it was, and with it that something
 *   is about to be written: the next connection is never greeted. Here that connection ends at once, and
 *   so the next ones, until the rest is long enough for the driver to write it all the same.
 *
 * To be called when the driver gets it.
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
