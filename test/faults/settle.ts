import { setTimeout as sleep } from 'node:timers/promises';
import { readiness } from '#bench/service/readiness';
import type { Batch as BatchStatus, BatchResult } from '#protocol/schemas/batch';
import type { Client } from './client.js';
import type { Asked, Batch, Single } from './memory.js';
import type { World } from './world.js';

const AT_ONCE = 16;

/** Calls for each, some at a time. */
export async function forEach<T>(
  all: readonly T[],
  call: (one: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let one = all[next++]; one !== undefined; one = all[next++]) await call(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/**
 * Does what a client does that wants everything settled: sends again what was not acknowledged, and
 * asks for what is under way, until all of it is settled, verified and public.
 *
 * @returns what did not come before the deadline, by `performance.now`
 */
export async function settleAll(world: World, client: Client, deadline: number): Promise<string[]> {
  const { asked } = client.memory;
  const isOpen = (one: Asked): boolean =>
    one.kind === 'single' ? one.receipt === null : one.proofIds.length === 0;
  for (;;) {
    const open = asked.filter(isOpen);
    if (open.length === 0) break;
    if (performance.now() > deadline) return [`${String(open.length)} requests are not settled`];
    await forEach(open, async (one) => {
      if (performance.now() > deadline) return;
      if (one.kind === 'single') await client.send(one);
      else await followBatch(client, one);
    });
    if (asked.some(isOpen)) await sleep(100);
  }
  for (;;) {
    const left = await unfinished(world).catch((error: unknown) => String(error));
    if (left === null) return [];
    if (performance.now() > deadline) return [left];
    await sleep(50);
  }
}

async function followBatch(client: Client, batch: Batch): Promise<void> {
  if (batch.batchId === null && !(await client.send(batch))) return;
  try {
    const done = await batchResults(client, batch);
    if (done !== null) batch.proofIds = done;
  } catch {
    // Asked again.
  }
}

/** The proof ids of its items by place; null as long as some are pending. */
export async function batchResults(client: Client, batch: Batch): Promise<string[] | null> {
  const url = `${client.engineUrl}/v1/batches/${batch.batchId ?? ''}`;
  const signal = AbortSignal.timeout(10_000);
  const response = await fetch(url, { headers: client.headers, signal });
  if (response.status === 404) {
    client.memory.broken.push(`batch ${batch.batchId ?? ''} is not known any more`);
  }
  if (response.status !== 200) return null;
  if (((await response.json()) as BatchStatus).state !== 'completed') return null;
  const lines = await fetch(`${url}/results`, {
    headers: { ...client.headers, accept: 'application/x-ndjson' },
    signal,
  });
  if (lines.status !== 200) return null;
  const results = (await lines.text())
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as BatchResult);
  const ids = results.map(({ state, proof_id: id }) =>
    (state === 'admitted' || state === 'denied') && id !== undefined ? id : '',
  );
  if (ids.length !== batch.items || ids.includes('')) {
    client.memory.broken.push(`batch ${batch.batchId ?? ''} is over without results for all items`);
  }
  return ids;
}

/** What the programs still have to do; null when all is done. */
async function unfinished(world: World): Promise<string | null> {
  const [row] = await world.database.sql<
    { pending: number; unverified: number; tree_size: number }[]
  >`
    select (select count(*) from svc.intake_pending)::int as pending,
      (tree_size - coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0))::int
        as unverified,
      tree_size::int
    from svc.log_head`;
  if (row === undefined) return 'the log has no head';
  if (row.pending > 0) return `${String(row.pending)} admissions are pending`;
  if (row.unverified > 0) return `${String(row.unverified)} leaves are not verified`;
  const { tree_size: published } = await readiness(world.publicUrl);
  const behind = row.tree_size - published;
  return behind === 0 ? null : `${String(behind)} leaves are not published`;
}

export const singlesOf = (all: readonly Asked[]): Single[] =>
  all.filter((one) => one.kind === 'single');
export const batchesOf = (all: readonly Asked[]): Batch[] =>
  all.filter((one) => one.kind === 'batch');
