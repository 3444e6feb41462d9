import { isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import { withTimeout } from '../concurrency/promises.js';

/** How a database wants TLS, as the driver reads it out of its URL. */
export interface TlsOptions {
  ssl: string | boolean | ConnectionOptions;
  /** `direct` speaks it at once, without asking whether the server does. */
  sslnegotiation: string | null;
}

const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
const YES = 0x53;

/** These ask for secrecy from whoever listens, and not for proof of who answers. */
const UNVERIFIED = ['require', 'allow', 'prefer'];

/**
 * Goes over to TLS on a connection that was just begun, and comes back with what is spoken over. The
 * driver could do that itself, and would then see to its end itself too: see `whole`.
 *
 * @param host whose name the certificate has to have
 */
export async function secured(
  raw: Socket,
  host: string,
  { ssl, sslnegotiation }: TlsOptions,
  ms: number,
): Promise<Socket> {
  const late = (): Error =>
    Object.assign(new Error('TLS was not agreed upon in time'), { code: 'CONNECT_TIMEOUT' });
  try {
    const agreed = await withTimeout(
      negotiate(raw, host, ssl, sslnegotiation === 'direct'),
      ms,
      late,
    );
    // What ends in the same moment has nobody told: the driver would wait for that for ever.
    if (agreed.destroyed) throw refused('the connection ended as TLS was agreed upon');
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
    // One byte, and nothing may come behind it that was not encrypted: it would be taken for the session's.
    const answer = (await event(raw, 'data')) as Buffer;
    raw.pause();
    const takesTls = answer[0] === YES && answer.length === 1;
    if (!takesTls && ssl === 'prefer' && answer.length === 1) return raw;
    if (!takesTls) throw refused('the database server does not take TLS');
  }
  const socket = connectTls({
    socket: raw,
    // An address is no name to ask for, and is what the certificate has to be for all the same.
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
 * An error may come between what is waited for and the next wait, and behind the last of them before the
 * driver listens. Nobody hears it there, and it would end the process.
 */
function heed(socket: Socket): void {
  socket.on('error', () => undefined);
}

/** The next event of that name; an error or the end before it is a rejection. */
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
    const onClose = (): void => onError(refused('the connection ended before TLS was agreed upon'));
    const off = (): void => {
      socket.off(name, onEvent).off('error', onError).off('close', onClose);
    };
    socket.on(name, onEvent).on('error', onError).on('close', onClose);
  });
}

function refused(message: string): Error {
  return Object.assign(new Error(message), { code: 'CONNECTION_CLOSED' });
}

/** A connection that could not be had, as the driver knows one: it fails once the driver holds it. */
export function failing(error: unknown): Socket {
  const socket = new Socket();
  // Taken, and gone: left where it is, it would keep the next connection from being greeted.
  socket._write = (_chunk, _encoding, done) => done();
  socket._writev = (_chunks, done) => done();
  setImmediate(() => setImmediate(() => socket.destroy(error as Error)));
  return socket;
}
