import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

export type Cut = 'reset' | 'end';

/** The server's last word before it is asked something: a session is open, and in no transaction. */
const READY_FOR_QUERY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** What is the matter with a way, until it is changed again. */
interface WayState {
  /** What gets lost on it, without a word: nothing, what comes back, or all. */
  loses: 'nothing' | 'answers' | 'all';
  /** How it turns away whoever connects. */
  refuses: Cut | null;
  /** Resets each connection with the first that is asked of its session. */
  cutsFirstQuestion: boolean;
}

export interface TcpProxy {
  /** As that of the database, over this way. */
  url: string;
  state: WayState;
  /** Ends every connection that there is; others may come. */
  cut(how?: Cut): void;
  /** Has nobody listen any more; what there is ends. */
  leave(): Promise<void>;
  /** Listens again, where it did. */
  comeBack(): Promise<void>;
  close(): void;
}

/** A way to the database that can be cut, left, fall silent, and be mended. */
export async function startTcpProxy(target: URL): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  const state: WayState = { loses: 'nothing', refuses: null, cutsFirstQuestion: false };
  const end = (socket: Socket, how: Cut): void => {
    if (how === 'reset') socket.resetAndDestroy();
    else socket.destroy();
  };
  const passOn = (from: Socket, to: Socket, isLost: () => boolean): void => {
    sockets.add(from);
    from.on('data', (bytes) => void (isLost() || to.write(bytes)));
    from.on('error', () => to.destroy());
    from.on('close', () => {
      sockets.delete(from);
      to.destroy();
    });
  };
  const meet = (inward: Socket): void => {
    if (state.refuses !== null) {
      inward.on('error', () => undefined);
      end(inward, state.refuses);
      return;
    }
    const outward = connect(Number(target.port), target.hostname);
    outward.on('data', (said: Buffer) => {
      if (!state.cutsFirstQuestion || !said.subarray(-6).equals(READY_FOR_QUERY)) return;
      inward.once('data', () => end(inward, 'reset'));
    });
    passOn(inward, outward, () => state.loses === 'all');
    passOn(outward, inward, () => state.loses !== 'nothing');
  };
  let server: Server;
  const listenOn = async (port: number): Promise<number> => {
    server = createServer(meet);
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    return (server.address() as AddressInfo).port;
  };
  const cut = (how: Cut = 'end'): void => {
    for (const socket of sockets) end(socket, how);
    sockets.clear();
  };

  const port = await listenOn(0);
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return {
    url: url.toString(),
    state,
    cut,
    leave: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        cut();
      }),
    comeBack: async () => void (await listenOn(port)),
    close: () => {
      cut();
      server.close();
    },
  };
}
