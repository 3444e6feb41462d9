/** A complete message of the Postgres protocol. */
export interface Message {
  bytes: Buffer;
  /** The statement, in lower case with single spaces; null if the message has none. */
  sql: string | null;
  /** Whether the server responds to the message with ReadyForQuery. */
  isAnswered: boolean;
}

const plain = (sql: string): string => sql.toLowerCase().replaceAll(/\s+/g, ' ').trim();

/** The client messages of one connection. */
export class ClientMessages {
  private rest: Buffer = Buffer.alloc(0);
  private hasStarted = false;
  private readonly statements = new Map<string, string>();
  private bound = '';
  /** Statements of the open transaction; null outside of transactions. */
  transaction: string[] | null = null;
  private hasEnded = false;

  *take(chunk: Buffer): Generator<Message> {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    for (;;) {
      // Only the startup message has no type byte.
      const head = this.hasStarted ? 1 : 0;
      if (this.rest.length < head + 4) return;
      const length = head + this.rest.readUInt32BE(head);
      if (this.rest.length < length) return;
      const bytes = this.rest.subarray(0, length);
      this.rest = this.rest.subarray(length);
      const type = this.hasStarted ? String.fromCharCode(bytes[0] ?? 0) : '';
      this.hasStarted = true;
      const sql = this.statementOf(type, bytes);
      if (sql !== null) this.trackTransaction(sql);
      yield { bytes, sql, isAnswered: type === 'S' || type === 'Q' };
    }
  }

  /** A transaction stays open until its commit or rollback has passed. */
  private trackTransaction(sql: string): void {
    if (this.hasEnded) this.transaction = null;
    this.hasEnded = sql === 'commit' || sql === 'rollback';
    if (sql === 'begin' || sql.startsWith('begin ')) this.transaction = [];
    else this.transaction?.push(sql);
  }

  private statementOf(type: string, bytes: Buffer): string | null {
    if (type === 'Q') return plain(textAt(bytes, 5));
    if (type === 'E') return this.bound;
    if (type === 'P') {
      const name = textAt(bytes, 5);
      this.statements.set(name, plain(textAt(bytes, 6 + Buffer.byteLength(name))));
    }
    if (type === 'B') {
      const portal = textAt(bytes, 5);
      const name = textAt(bytes, 6 + Buffer.byteLength(portal));
      this.bound = this.statements.get(name) ?? '';
    }
    return null;
  }
}

/** Counts the complete responses of the server. */
export class ServerAnswers {
  private rest: Buffer = Buffer.alloc(0);
  /** The first response belongs to the startup message. */
  count = -1;

  take(chunk: Buffer): void {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    while (this.rest.length >= 5) {
      const length = 1 + this.rest.readUInt32BE(1);
      if (this.rest.length < length) return;
      if (this.rest[0] === READY) this.count += 1;
      this.rest = this.rest.subarray(length);
    }
  }
}

const READY = 'Z'.charCodeAt(0);

/** The text up to its terminating zero byte. */
function textAt(bytes: Buffer, start: number): string {
  return bytes.toString('utf8', start, bytes.indexOf(0, start));
}
