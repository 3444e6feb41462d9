import { Socket } from 'node:net';

/** What a session's start ends with, and nothing else before it is open: ReadyForQuery, by its head. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5]);

/** After so many turns the driver has written the first message of a connection, if it ever does. */
const TURNS_TO_WRITE = 4;

/**
 * A socket whose end the driver hears of in one go, for three faults of it, all of which leave
 * somebody waiting for ever or for long, and without a word:
 *
 * - Between `error` and `close` it goes on sending on the connection that failed, and forgets what it
 *   sent: no statement of that moment is ever answered. Here both come in the same instant.
 * - A connection that is ended before its session is open, without an error, it opens again at once
 *   and without end, while the statement waits. Here such an end is an error.
 * - What it was about to write when the connection ended stays where it was, and with it that something
 *   is about to be written: the next connection is never greeted. Here that connection ends at once, and
 *   so the next ones, until the rest is long enough for the driver to write it all the same.
 *
 * Over TLS the driver hears of a socket of its own instead, and the first of the three is left.
 */
export class WholeSocket extends Socket {
  private failure: Error | null = null;
  private isOpen = false;
  private isTakenBack = false;

  constructor() {
    super();
    this.on('data', (chunk: Buffer) => {
      this.isOpen ||= chunk.subarray(-READY.length - 1, -1).equals(READY);
    });
  }

  /** To be called when the driver gets it. */
  expectGreeting(): this {
    let turns = 0;
    const look = (): void => {
      if (this.destroyed || this.bytesWritten > 0) return;
      turns += 1;
      if (turns < TURNS_TO_WRITE) setImmediate(look);
      else {
        this.isTakenBack = true;
        this.destroy();
      }
    };
    setImmediate(look);
    return this;
  }

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    if (event === 'error') {
      this.failure ??= args[0] as Error;
      return true;
    }
    if (event !== 'close') return super.emit(event, ...args);
    if (this.failure === null && !this.isOpen && !this.isTakenBack) this.failure = endedEarly();
    if (this.failure === null) return super.emit('close', false);
    if (this.listenerCount('error') > 0) super.emit('error', this.failure);
    return super.emit('close', true);
  }
}

function endedEarly(): Error {
  const error = new Error('the server ended the connection before the session was open');
  return Object.assign(error, { code: 'CONNECTION_CLOSED' });
}
