import { connect, createServer, type Server, type Socket } from 'node:net';
import { ServerAnswers, ClientMessages } from './postgres-messages.js';

/** The moment in a conversation with Postgres at which the connection breaks. */
export interface Trap {
  /** Whether the connection breaks at this statement, given the earlier statements of its transaction. */
  matches(sql: string, transaction: readonly string[] | null): boolean;
  /**
   * `unsent`: the server never receives the statement. `unanswered`: the server executes the statement,
   * and the answer is lost. `answered`: nothing breaks; `then` is called right before the answer is sent.
   */
  breaks: 'unsent' | 'unanswered' | 'answered';
  /** Called before client or server can notice the break. */
  then?(): void;
}

/** The network between a program and a server. */
interface Network {
  delayMs: number;
  /** Drops everything silently. */
  isStalled: boolean;
}

/** One direction of one connection, which delivers bytes in order and late. */
class Flow {
  /** Null marks the end of the stream. */
  private readonly waiting: { due: number; bytes: Buffer | null }[] = [];
  private timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly to: Socket,
    private readonly network: Network,
  ) {}

  push(bytes: Buffer | null): void {
    this.waiting.push({ due: performance.now() + this.network.delayMs, bytes });
    this.pump();
  }

  /** Delivers the bytes that are due; also called when the network settings change. */
  pump(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    for (let next = this.waiting[0]; next !== undefined; next = this.waiting[0]) {
      if (this.network.isStalled || this.to.destroyed) return;
      const wait = next.due - performance.now();
      if (wait > 0.5) {
        this.timer = setTimeout(() => this.pump(), wait);
        return;
      }
      this.waiting.shift();
      if (next.bytes === null) this.to.end();
      else this.to.write(next.bytes);
    }
  }

  stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.waiting.length = 0;
  }
}

interface Line {
  break(how: 'end' | 'reset'): void;
  pump(): void;
}

/** The connections of one program to a server, through a TCP proxy that fails on demand. */
export class Link {
  private readonly network: Network = { delayMs: 0, isStalled: false };
  private readonly lines = new Set<Line>();
  private isCut = false;
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

  /** Delays every message in both directions. */
  slow(delayMs: number): void {
    this.network.delayMs = delayMs;
  }

  /** Delays every message until the stall ends. */
  stall(isStalled: boolean): void {
    this.network.isStalled = isStalled;
    for (const line of this.lines) line.pump();
  }

  /** Breaks current connections. */
  breakAll(how: 'end' | 'reset'): void {
    for (const line of [...this.lines]) line.break(how);
  }

  /** Breaks current and new connections. */
  cut(isCut: boolean): void {
    this.isCut = isCut;
    if (isCut) this.breakAll('reset');
  }

  /** Breaks current connections; new ones lead to another port. */
  redirect(target: number): void {
    this.target = target;
    this.breakAll('reset');
  }

  /** Resolves when the trap has been triggered `times` times. */
  set(trap: Trap, times = 1): Promise<void> {
    return new Promise((resolve) => {
      this.traps.push({ trap, left: times, sprung: resolve });
    });
  }

  /** Removes a trap that was not triggered often enough. */
  remove(trap: Trap): void {
    this.traps = this.traps.filter((one) => one.trap !== trap);
  }

  /** Removes traps that were not triggered. */
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
    if (this.isCut) {
      client.resetAndDestroy();
      return;
    }
    const server = connect(this.target, '127.0.0.1');
    const toServer = new Flow(server, this.network);
    const toClient = new Flow(client, this.network);
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
      if (!this.network.isStalled) this.lines.delete(line);
    });
    if (this.protocol === 'other') {
      client.on('data', (chunk: Buffer) => toServer.push(chunk));
      server.on('data', (chunk: Buffer) => toClient.push(chunk));
    } else {
      this.inspect(client, server, { toServer, toClient, line });
    }
  }

  private inspect(
    client: Socket,
    server: Socket,
    { toServer, toClient, line }: { toServer: Flow; toClient: Flow; line: Line },
  ): void {
    const spoken = new ClientMessages();
    const answered = new ServerAnswers();
    let requests = 0;
    let caught: { trap: Trap; answer: number } | null = null;
    let isBroken = false;
    const breakOff = (trap: Trap): void => {
      isBroken = true;
      trap.then?.();
      line.break('reset');
    };
    client.on('data', (chunk: Buffer) => {
      if (isBroken) return;
      const passed: Buffer[] = [];
      // One write for all messages of a chunk: every write is a system call that wakes the server.
      const pass = (): void => toServer.push(Buffer.concat(passed));
      for (const message of spoken.take(chunk)) {
        const { sql } = message;
        const trap = sql === null ? null : this.spring(sql, spoken.transaction);
        if (trap?.breaks === 'unsent') {
          pass();
          breakOff(trap);
          return;
        }
        if (trap !== null) caught ??= { trap, answer: requests + 1 };
        if (message.isAnswered) requests += 1;
        passed.push(message.bytes);
      }
      pass();
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
