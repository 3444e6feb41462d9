import { randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { withPool } from '#runtime/postgres/connect';
import type { Db } from '#sql/db/transaction';
import { report, runTask } from '../harness/child.js';
import { requestAt, type ItemSource } from '../harness/items.js';
import {
  type BaselineKeys,
  insertDocuments,
  newBaselineKeys,
  signDocument,
  type SignedDocument,
} from './signed-documents.js';

/** Entry point of one process of the baseline loop; one runs on each core. */

export interface BaselineTask {
  databaseUrl: string;
  source: ItemSource;
  warmUpSeconds: number;
  seconds: number;
}

export interface BaselineReport {
  /** Rows committed after the warm-up. `seconds` and `cpuSeconds` cover the same period. */
  rows: number;
  seconds: number;
  cpuSeconds: number;
  /** Committed rows including the warm-up. */
  allRows: number;
}

const ROWS_PER_TRANSACTION = 1_000;
/** Signing yields after this many documents, so that the driver can send the previous insert. */
const YIELD_EVERY = 50;

runTask<BaselineTask>((task) =>
  withPool(task.databaseUrl, { application: 'bench-baseline', max: 1 }, async (sql) =>
    report(await baselineLoop(sql, task)),
  ),
);

/** Signs one group while the previous group is inserted. Measures from the first commit after the warm-up. */
async function baselineLoop(sql: Db, task: BaselineTask): Promise<BaselineReport> {
  const keys = newBaselineKeys();
  const warmUntil = performance.now() + task.warmUpSeconds * 1000;
  const until = warmUntil + task.seconds * 1000;
  let from: { at: number; committed: number; cpu: NodeJS.CpuUsage } | null = null;
  let committed = 0;
  let at = performance.now();
  let inserting: Promise<void> = Promise.resolve();
  for (let next = 0; at < until; next += ROWS_PER_TRANSACTION) {
    const group = await signGroup(task.source, next, keys);
    await inserting;
    if (from === null && at >= warmUntil) from = { at, committed, cpu: process.cpuUsage() };
    inserting = insertDocuments(sql, group).then(() => {
      committed += group.length;
      at = performance.now();
    });
    // The next round awaits the insert; until then a rejection must not end the process.
    inserting.catch(() => undefined);
  }
  await inserting;
  if (from === null) throw new Error('the baseline loop committed nothing after its warm-up');
  const { user, system } = process.cpuUsage(from.cpu);
  return {
    rows: committed - from.committed,
    seconds: (at - from.at) / 1000,
    cpuSeconds: (user + system) / 1e6,
    allRows: committed,
  };
}

async function signGroup(
  source: ItemSource,
  first: number,
  keys: BaselineKeys,
): Promise<SignedDocument[]> {
  const salts = randomBytes(32 * ROWS_PER_TRANSACTION);
  const group: SignedDocument[] = [];
  for (let i = 0; i < ROWS_PER_TRANSACTION; i += 1) {
    const text = JSON.stringify(requestAt(source, first + i));
    group.push(signDocument(text, salts.subarray(i * 32, i * 32 + 32), keys));
    if (i % YIELD_EVERY === 0) await setImmediate();
  }
  return group;
}
