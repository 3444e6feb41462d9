import { connect as connectSocket, createServer, type AddressInfo, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import { secured } from '#runtime/postgres/tls-socket';
import { selfSigned, serveTls, skipsTls } from '../fixtures/database-tls.js';
import { freshDatabase } from '../fixtures/database.js';

const WISH = { ssl: 'require', sslnegotiation: null };

/** Runs a client against a server that answers `says`, or closes the connection. */
async function before<T>(says: string | null, ask: (socket: Socket) => Promise<T>): Promise<T> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      if (says === '') socket.end();
      else if (says !== null) socket.write(says);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const socket = connectSocket((server.address() as AddressInfo).port, '127.0.0.1');
  try {
    return await ask(socket);
  } finally {
    socket.destroy();
    server.close();
  }
}

/** Runs a client against a TLS server at 127.0.0.1 with a trusted certificate for these names. */
async function meet(
  names: string,
  taken: (socket: Socket) => unknown = () => 'taken',
): Promise<unknown> {
  const own = await selfSigned(names);
  const server = createTlsServer(own, (socket) => socket.on('error', () => undefined));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const socket = connectSocket((server.address() as AddressInfo).port, '127.0.0.1');
  const wish = { ssl: { ca: own.cert }, sslnegotiation: 'direct' };
  try {
    return await secured(socket, '127.0.0.1', wish, 5_000).then(
      taken,
      (error: unknown) => (error as { code?: unknown }).code,
    );
  } finally {
    socket.destroy();
    server.close();
  }
}

describe('database TLS', () => {
  it('fails when the server does not support TLS', async () => {
    const asked = before('N', (socket) => secured(socket, 'localhost', WISH, 1_000));
    await expect(asked).rejects.toThrow('does not support TLS');
    // Also when it continues in plain text after accepting.
    const mixed = before('Sx', (socket) => secured(socket, 'localhost', WISH, 1_000));
    await expect(mixed).rejects.toThrow('does not support TLS');
  });

  it('falls back to plain text when TLS is only preferred', async () => {
    const wish = { ...WISH, ssl: 'prefer' };
    await before('N', async (socket) =>
      expect(await secured(socket, 'localhost', wish, 1_000)).toBe(socket),
    );
  });

  it.skipIf(skipsTls)('causes no unhandled rejection', async () => {
    const wish = { ...WISH, ssl: 'prefer' };
    const plain = await before('N', (socket) => secured(socket, 'localhost', wish, 1_000));
    expect(plain.emit('error', new Error('late'))).toBe(true);
    expect(await meet('IP:127.0.0.1', (socket) => socket.emit('error', new Error('late')))).toBe(
      true,
    );
  });

  it('times out when the server does not answer', async () => {
    await before(null, async (socket) => {
      const asked = secured(socket, 'localhost', WISH, 100);
      await expect(asked).rejects.toMatchObject({ code: 'CONNECT_TIMEOUT' });
      // The socket has no owner: left open, it would leak a server connection.
      expect(socket.destroyed).toBe(true);
    });
  });

  it('fails when the server closes the connection', async () => {
    const asked = before('', (socket) => secured(socket, 'localhost', WISH, 20_000));
    await expect(asked).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
  });

  it.skipIf(skipsTls)('verifies the certificate of a server addressed by IP', async () => {
    const met = await Promise.all(['IP:127.0.0.1', 'DNS:localhost'].map((one) => meet(one)));
    expect(met).toEqual(['taken', 'ERR_TLS_CERT_ALTNAME_INVALID']);
  });

  it.skipIf(skipsTls)(
    'rejects an untrusted certificate when verification is required',
    async () => {
      await serveTls();
      const db = await freshDatabase();
      const sql = connect(`${db.urlFor('svc_engine')}?sslmode=verify-full`, {
        application: 'test',
      });
      await expect(sql`select 1`).rejects.toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
      const line = await sql.reserve();
      await expect(line`select 1`).rejects.toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
      line.destroy();
      await sql.end({ timeout: 1 });
      await db.drop();
    },
  );
});
