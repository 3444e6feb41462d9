import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** A way to the database on which, from some moment on, nothing comes back and nothing is refused. */
export async function wayThatFallsSilent(target: URL) {
  const sockets = new Set<Socket>();
  const state = { silent: false };
  const server = createServer((inward) => {
    const outward = connect(Number(target.port), target.hostname);
    for (const socket of [inward, outward]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
    }
    inward.pipe(outward);
    outward.on('data', (chunk) => {
      if (!state.silent) inward.write(chunk);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.toString(),
    state,
    /** Ends every connection, and lets new ones be as they should. */
    mend: () => {
      state.silent = false;
      for (const socket of sockets) socket.destroy();
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
