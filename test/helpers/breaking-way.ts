import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export type Cut = 'reset' | 'end';

/** The server's last word before it is asked something: a session is open, and in no transaction. */
const READY_FOR_QUERY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** A way to the database that can be cut off, and that may break off whoever connects. */
export async function wayThatBreaks(target: URL) {
  const sockets = new Set<Socket>();
  const state = {
    refuses: null as Cut | null,
    /** Resets each connection with the first that is asked of its session. */
    cutsFirstQuestion: false,
  };
  const end = (socket: Socket, how: Cut): void => {
    if (how === 'reset') socket.resetAndDestroy();
    else socket.destroy();
  };
  const server = createServer((inward) => {
    inward.on('error', () => undefined);
    if (state.refuses !== null) {
      end(inward, state.refuses);
      return;
    }
    const outward = connect(Number(target.port), target.hostname);
    outward.on('error', () => undefined);
    for (const socket of [inward, outward]) sockets.add(socket);
    outward.on('data', (said: Buffer) => {
      if (!state.cutsFirstQuestion || !said.subarray(-6).equals(READY_FOR_QUERY)) return;
      inward.once('data', () => end(inward, 'reset'));
    });
    inward.pipe(outward);
    outward.pipe(inward);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.toString(),
    state,
    cut: (how: Cut) => {
      for (const socket of sockets) end(socket, how);
      sockets.clear();
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
