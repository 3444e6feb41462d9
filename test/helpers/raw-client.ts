import { connect, type Socket } from 'node:net';
import { once } from 'node:events';

/** A client that speaks as badly as it is told to. */
export class RawClient {
  received = '';
  isClosed = false;
  private constructor(readonly socket: Socket) {
    socket.setEncoding('latin1');
    socket.on('data', (piece: string) => (this.received += piece));
    socket.on('error', () => undefined);
    socket.once('close', () => (this.isClosed = true));
  }

  /** `localAddress`: another address of the loopback network to connect from. */
  static async connect({ port }: { port: number }, localAddress = '127.0.0.1'): Promise<RawClient> {
    const socket = connect({ host: '127.0.0.1', port, localAddress });
    const client = new RawClient(socket);
    await once(socket, 'connect');
    return client;
  }

  say(text: string): void {
    if (this.socket.writable) this.socket.write(text, 'latin1');
  }

  /** Says a text a byte at a time for as long as anybody listens. */
  dribble(text: string, everyMs: number): void {
    let at = 0;
    const timer = setInterval(() => {
      if (this.isClosed || at >= text.length) clearInterval(timer);
      else this.say(text[at++]!);
    }, everyMs);
    this.socket.once('close', () => clearInterval(timer));
  }

  /** All that came, once the server has hung up. */
  async end(): Promise<string> {
    if (!this.isClosed) await once(this.socket, 'close');
    return this.received;
  }

  destroy(): void {
    this.socket.destroy();
  }
}

export const statusesOf = (raw: string): number[] =>
  [...raw.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
