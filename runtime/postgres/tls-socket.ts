import { isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import { withTimeout } from '../concurrency/promises.js';

/** TLS options of the database URL, as the driver parses them. */
export interface TlsOptions {
  ssl: string | boolean | ConnectionOptions;
  /** `direct` starts TLS without SSLRequest. */
  sslnegotiation: string | null;
}

const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
const YES = 0x53;

/** These modes encrypt, but do not verify the server's certificate. */
const UNVERIFIED = ['require', 'allow', 'prefer'];

/**
 * Upgrades a new connection to TLS and returns the encrypted socket. The driver's own upgrade would
 * bypass `hardenSocket`.
 *
 * @param host name that the certificate must match
 */
export async function secured(
  raw: Socket,
  host: string,
  { ssl, sslnegotiation }: TlsOptions,
  ms: number,
): Promise<Socket> {
  const late = (): Error =>
    Object.assign(new Error('the TLS handshake timed out'), { code: 'CONNECT_TIMEOUT' });
  try {
    const agreed = await withTimeout(
      negotiate(raw, host, ssl, sslnegotiation === 'direct'),
      ms,
      late,
    );
    // No event reports a socket that closed in this tick, and the driver would wait forever.
    if (agreed.destroyed) throw refused('the connection closed at the end of the TLS handshake');
    return agreed;
  } catch (error) {
    raw.destroy();
    throw error;
  }
}

async function negotiate(
  raw: Socket,
  host: string,
  ssl: TlsOptions['ssl'],
  isDirect: boolean,
): Promise<Socket> {
  heed(raw);
  await event(raw, 'connect');
  if (!isDirect) {
    raw.write(SSL_REQUEST);
    // The answer is one byte. Anything after it was sent in the clear and must not be read as part
    // of the session.
    const answer = (await event(raw, 'data')) as Buffer;
    raw.pause();
    const takesTls = answer[0] === YES && answer.length === 1;
    if (!takesTls && ssl === 'prefer' && answer.length === 1) return raw;
    if (!takesTls) throw refused('the database server does not support TLS');
  }
  const socket = connectTls({
    socket: raw,
    // SNI takes no IP address; the certificate is checked against it all the same.
    host,
    ...(isIP(host) === 0 && { servername: host }),
    ...(isDirect && { ALPNProtocols: ['postgresql'] }),
    ...(typeof ssl === 'string' && UNVERIFIED.includes(ssl) && { rejectUnauthorized: false }),
    ...(typeof ssl === 'object' && ssl),
  });
  heed(socket);
  await event(socket, 'secureConnect');
  return socket;
}

/**
 * An error can occur between two waits, or before the driver attaches its listeners. Unhandled, it
 * would end the process.
 */
function heed(socket: Socket): void {
  socket.on('error', () => undefined);
}

/** Resolves with the next event of that name; rejects on an error or close. */
function event(socket: Socket, name: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const onEvent = (value: unknown): void => {
      off();
      resolve(value);
    };
    const onError = (error: Error): void => {
      off();
      reject(error);
    };
    const onClose = (): void => onError(refused('the connection closed during the TLS handshake'));
    const off = (): void => {
      socket.off(name, onEvent).off('error', onError).off('close', onClose);
    };
    socket.on(name, onEvent).on('error', onError).on('close', onClose);
  });
}

function refused(message: string): Error {
  return Object.assign(new Error(message), { code: 'CONNECTION_CLOSED' });
}

/**
 * A socket that fails once the driver holds it, which is how the driver expects failed connections.
 */
export function failing(error: unknown): Socket {
  const socket = new Socket();
  // Accept and drop the bytes: left in the buffer, they would block the greeting of the next
  // connection.
  socket._write = (_chunk, _encoding, done) => done();
  socket._writev = (_chunks, done) => done();
  setImmediate(() => setImmediate(() => socket.destroy(error as Error)));
  return socket;
}
