import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { connect } from '#runtime/postgres/connect';
import type { Db } from '#sql/db/transaction';
import { insertBareProofs } from './bare-table.js';
import type { BareMessage, BareTask } from './bare-task.js';
import { bareProof, type BareKeys, type BareProof } from './bare-work.js';
import { requestAt, type ItemSource } from '../service/items.js';

/** Entry point of one process of the bare loop: one of them runs on each core. */

const ROWS_PER_TRANSACTION = 1_000;
/** Proofs after which the driver may write what it has: the insert before goes on beside. */
const AT_A_STRETCH = 50;

process.once('message', (message) => {
  void work(message as BareTask).finally(() => process.disconnect());
});

const say = (message: BareMessage): void => void process.send?.(message);

async function work(task: BareTask): Promise<void> {
  const sql = connect(task.databaseUrl, { application: 'bench-bare', max: 1 });
  try {
    say(await bareLoop(sql, task));
  } catch (error) {
    process.exitCode = 1;
    say({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** What is committed counts, from one commit to another: one group is made while one is inserted. */
async function bareLoop(sql: Db, task: BareTask): Promise<BareMessage> {
  const keys = bareKeys();
  const warmUntil = performance.now() + task.warmUpSeconds * 1000;
  const until = warmUntil + task.seconds * 1000;
  let from: { at: number; committed: number; cpu: NodeJS.CpuUsage } | null = null;
  let committed = 0;
  let at = performance.now();
  let inserting: Promise<void> = Promise.resolve();
  for (let next = 0; at < until; next += ROWS_PER_TRANSACTION) {
    const group = await makeGroup(task.source, next, keys);
    await inserting;
    if (from === null && at >= warmUntil) from = { at, committed, cpu: process.cpuUsage() };
    inserting = insertBareProofs(sql, group).then(() => {
      committed += group.length;
      at = performance.now();
    });
    // It is awaited when the next group is made; until then nobody listens.
    inserting.catch(() => undefined);
  }
  await inserting;
  if (from === null) throw new Error('the bare loop committed nothing in its time');
  const { user, system } = process.cpuUsage(from.cpu);
  return {
    rows: committed - from.committed,
    seconds: (at - from.at) / 1000,
    cpuSeconds: (user + system) / 1e6,
    allRows: committed,
  };
}

async function makeGroup(source: ItemSource, first: number, keys: BareKeys): Promise<BareProof[]> {
  const salts = randomBytes(32 * ROWS_PER_TRANSACTION);
  const group: BareProof[] = [];
  for (let i = 0; i < ROWS_PER_TRANSACTION; i += 1) {
    const text = JSON.stringify(requestAt(source, first + i));
    group.push(bareProof(text, salts.subarray(i * 32, i * 32 + 32), keys));
    if (i % AT_A_STRETCH === 0) await setImmediate();
  }
  return group;
}

function bareKeys(): BareKeys {
  return { ...generateKeyPairSync('ed25519'), keyId: randomBytes(32).toString('base64url') };
}
