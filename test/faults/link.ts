import { connect, createServer, type Server, type Socket } from 'node:net';
import { Answered, Spoken } from './conversation.js';
import { Flow, type Weather } from './flow.js';

/** A moment of a conversation with Postgres at which the connection breaks. */
export interface Trap {
  /** Whether it is this statement, given what ran before in the same transaction. */
  matches(sql: string, transaction: readonly string[] | null): boolean;
  /**
   * `unsent`: the server never receives it. `unanswered`: the server executes it, and the answer is lost.
   * `answered`: nothing breaks, `then` is called when the answer is about to be passed on.
   */
  breaks: 'unsent' | 'unanswered' | 'answered';
  /** Called before anybody can notice anything. */
  then?(): void;
}

interface Line {
  break(how: 'end' | 'reset'): void;
  pump(): void;
}

/** The way of one program to a server: a TCP proxy on which the network can be as it is. */
export class Link {
  private readonly weather: Weather = { delayMs: 0, isStalled: false };
  private readonly lines = new Set<Line>();
  private isRefusing = false;
  private traps: { trap: Trap; left: number; sprung: () => void }[] = [];

  private constructor(
    private readonly server: Server,
    readonly port: number,
    private target: number,
    private readonly protocol: 'postgres' | 'other',
  ) {}

  static async open(target: number, protocol: 'postgres' | 'other'): Promise<Link> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('the link has no port');
    const link = new Link(server, address.port, target, protocol);
    server.on('connection', (socket) => link.accept(socket));
    return link;
  }

  /** Every answer and every question comes so much later. */
  slow(delayMs: number): void {
    this.weather.delayMs = delayMs;
  }

  /** Swallows everything, or lets what was held back go on. */
  stall(isStalled: boolean): void {
    this.weather.isStalled = isStalled;
    for (const line of this.lines) line.pump();
  }

  /** Breaks what is connected. */
  breakAll(how: 'end' | 'reset'): void {
    for (const line of [...this.lines]) line.break(how);
  }

  /** Breaks current and new connections. */
  cut(isCut: boolean): void {
    this.isRefusing = isCut;
    if (isCut) this.breakAll('reset');
  }

  /** Leads elsewhere from the next connection on. */
  redirect(target: number): void {
    this.target = target;
    this.breakAll('reset');
  }

  /** Resolves when the trap has sprung `times` times. */
  set(trap: Trap, times = 1): Promise<void> {
    return new Promise((resolve) => {
      this.traps.push({ trap, left: times, sprung: resolve });
    });
  }

  /** Takes away what has not sprung. */
  clear(): void {
    this.traps = [];
  }

  close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.breakAll('reset');
    return closed;
  }

  private spring(sql: string, transaction: readonly string[] | null): Trap | null {
    const found = this.traps.find(({ trap }) => trap.matches(sql, transaction));
    if (found === undefined) return null;
    found.left -= 1;
    if (found.left === 0) {
      this.traps = this.traps.filter((one) => one !== found);
      setImmediate(found.sprung);
    }
    return found.trap;
  }

  private accept(client: Socket): void {
    if (this.isRefusing) {
      client.resetAndDestroy();
      return;
    }
    const server = connect(this.target, '127.0.0.1');
    const toServer = new Flow(server, this.weather);
    const toClient = new Flow(client, this.weather);
    const line: Line = {
      break: (how) => {
        this.lines.delete(line);
        toServer.stop();
        toClient.stop();
        for (const socket of [client, server]) {
          if (how === 'reset') socket.resetAndDestroy();
          else socket.destroy();
        }
      },
      pump: () => {
        toServer.pump();
        toClient.pump();
      },
    };
    this.lines.add(line);
    for (const [socket, other] of [
      [client, toServer],
      [server, toClient],
    ] as const) {
      socket.setNoDelay(true);
      socket.on('error', () => line.break('reset'));
      socket.on('end', () => other.push(null));
    }
    client.on('close', () => {
      // Data delayed by a silent network still arrives, as TCP would deliver it.
      if (!this.weather.isStalled) this.lines.delete(line);
    });
    if (this.protocol === 'other') {
      client.on('data', (chunk: Buffer) => toServer.push(chunk));
      server.on('data', (chunk: Buffer) => toClient.push(chunk));
    } else {
      this.listenIn(client, server, { toServer, toClient, line });
    }
  }

  private listenIn(
    client: Socket,
    server: Socket,
    { toServer, toClient, line }: { toServer: Flow; toClient: Flow; line: Line },
  ): void {
    const spoken = new Spoken();
    const answered = new Answered();
    let asked = 0;
    let caught: { trap: Trap; answer: number } | null = null;
    let isBroken = false;
    const breakOff = (trap: Trap): void => {
      isBroken = true;
      trap.then?.();
      line.break('reset');
    };
    client.on('data', (chunk: Buffer) => {
      for (const message of spoken.take(chunk)) {
        if (isBroken) return;
        const { sql } = message;
        const trap = sql === null ? null : this.spring(sql, spoken.transaction);
        if (trap?.breaks === 'unsent') {
          breakOff(trap);
          return;
        }
        if (trap !== null) caught ??= { trap, answer: asked + 1 };
        if (message.isAnswered) asked += 1;
        toServer.push(message.bytes);
      }
    });
    server.on('data', (chunk: Buffer) => {
      if (isBroken) return;
      answered.take(chunk);
      if (caught !== null && answered.count >= caught.answer) {
        const { trap } = caught;
        caught = null;
        if (trap.breaks === 'unanswered') {
          breakOff(trap);
          return;
        }
        trap.then?.();
      }
      toClient.push(chunk);
    });
  }
}
