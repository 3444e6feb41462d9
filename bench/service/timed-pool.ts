import type { Pool, Transaction } from '#sql/db/transaction';

/** How the statement begins that takes the append lock, and those that give it back. */
const TAKES = /^\s*select tree_size from svc\.log_head for update\s*$/;
const GIVES_BACK = /^(?:commit|rollback)$/;

/**
 * A pool that tells how long each of its transactions held the append lock, in milliseconds: from the
 * answer to the statement that takes it to the answer to the commit, as far as this process can know.
 * The database grants and gives back a moment before either answer arrives.
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
  const givenBack = (): void => {
    if (takenAt !== null) onHeld(performance.now() - takenAt);
    takenAt = null;
  };
  return new Proxy(connection, {
    apply: (target, self, given: unknown[]) => {
      const statement = Reflect.apply(target, self, given) as unknown;
      const text = textOf(given[0]);
      // Both are awaited as soon as they are made, so that looking at them changes no order.
      if (TAKES.test(text)) void (statement as Promise<unknown>).then(taken, () => undefined);
      else if (GIVES_BACK.test(text)) {
        void (statement as Promise<unknown>).then(givenBack, givenBack);
      }
      return statement;
    },
  });
}

/** Of a statement without parameters; nothing else is looked for. */
function textOf(first: unknown): string {
  const isTemplate = Array.isArray(first) && 'raw' in first && first.length === 1;
  return isTemplate ? String(first[0]) : '';
}
