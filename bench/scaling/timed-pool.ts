import type { Pool, Transaction } from '#sql/db/transaction';

/** The statement that takes the append lock, and those that release it. */
const TAKES = /^\s*select tree_size from svc\.log_head for update\s*$/;
const RELEASES = /^(?:commit|rollback)$/;

/**
 * A pool that reports how long each transaction held the append lock, in milliseconds: from the answer
 * to the locking statement to the answer to commit or rollback.
 */
export function timedPool(sql: Pool, onHeld: (ms: number) => void): Pool {
  const reserve = async (): Promise<Transaction> => timed(await sql.reserve(), onHeld);
  return new Proxy(sql, {
    get: (target, name): unknown => (name === 'reserve' ? reserve : Reflect.get(target, name)),
  });
}

function timed(connection: Transaction, onHeld: (ms: number) => void): Transaction {
  let takenAt: number | null = null;
  const taken = (): void => void (takenAt = performance.now());
  const released = (): void => {
    if (takenAt !== null) onHeld(performance.now() - takenAt);
    takenAt = null;
  };
  return new Proxy(connection, {
    apply: (target, self, given: unknown[]) => {
      const statement = Reflect.apply(target, self, given) as unknown;
      const text = textOf(given[0]);
      // The caller awaits both statements at once, so that `then` here sends nothing earlier.
      if (TAKES.test(text)) void (statement as Promise<unknown>).then(taken, () => undefined);
      else if (RELEASES.test(text)) {
        void (statement as Promise<unknown>).then(released, released);
      }
      return statement;
    },
  });
}

/** The text of a statement without parameters; empty for any other. */
function textOf(first: unknown): string {
  const isTemplate = Array.isArray(first) && 'raw' in first && first.length === 1;
  return isTemplate ? String(first[0]) : '';
}
