import { connect } from 'node:net';

const IDLE_MS = 5_000;

/**
 * Sends bytes over one connection and returns all that comes back, byte for byte as Latin-1. The last
 * request should ask for the connection to be closed; a connection on which nothing comes any more is
 * an error.
 */
export function rawExchange(
  { port }: { port: number },
  request: string | readonly string[],
): Promise<string> {
  const pieces = typeof request === 'string' ? [request] : request;
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port });
    let text = '';
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    socket.setTimeout(IDLE_MS, () => {
      socket.destroy();
      reject(new Error(`the connection was left open after ${JSON.stringify(text.slice(-200))}`));
    });
    socket.on('data', (piece: string) => (text += piece));
    socket.on('error', reject);
    socket.on('end', () => resolve(text));
    socket.on('close', () => resolve(text));
    const send = (at: number): void => {
      const piece = pieces[at];
      if (piece === undefined) return;
      socket.write(piece, 'latin1', () => setImmediate(() => send(at + 1)));
    };
    send(0);
  });
}

/** The answers without when they were given. */
export function undated(raw: string): string {
  return raw.replaceAll(/\r\nDate: [^\r]*/g, '');
}
