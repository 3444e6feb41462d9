import { setTimeout as sleep } from 'node:timers/promises';
import { readiness } from '#bench/harness/public-api';
import { parseEntry } from '#protocol/entries';
import type { Batch as BatchStatus, BatchResult } from '#protocol/schemas/batch';
import { LOCATION_PATH, locationSchema } from '#protocol/snapshot/location';
import { parseTime } from '#protocol/time';
import { hasExpiredBetween, verdictEntries } from '#sql/log/log';
import type { Act } from './acts.js';
import type { Client } from './client.js';
import type { ClientRequest, Batch, Single } from './records.js';
import { Deadline, forEach } from './pace.js';
import { differingStatuses } from './public.js';
import type { World } from './world.js';

/** This interval is long, so that the checks of several stacks do not slow down the programs. */
const POLL_MS = 200;

/**
 * Repeats unacknowledged requests and follows batches, as a client would, until everything is
 * committed, verified and public.
 *
 * @returns what was incomplete at the deadline
 */
export async function untilComplete(
  world: World,
  client: Client,
  acts: readonly Act[],
  ms: number,
): Promise<string[]> {
  const deadline = new Deadline(ms);
  const isOpen = (one: ClientRequest): boolean =>
    one.kind === 'single' ? one.receipt === null : one.proofIds.length === 0;
  for (;;) {
    const open = client.records.requests.filter(isOpen);
    const openActs = client.acts.sent.filter((act) => !act.acknowledged);
    if (open.length + openActs.length === 0) break;
    if (deadline.hasPassed) {
      return [
        `${String(open.length)} requests are incomplete`,
        ...openActs.map(({ what }) => `${what} is not acknowledged`),
      ];
    }
    await forEach(open, async (one) => {
      if (deadline.hasPassed) return;
      await (one.kind === 'single' ? client.send(one) : followBatch(client, one));
    });
    if (!deadline.hasPassed) await repeatActs(client);
    if (client.records.requests.some(isOpen)) await sleep(100);
  }
  for (;;) {
    const left = await unfinished(world).catch((error: unknown) => String(error));
    if (left === null) break;
    if (deadline.hasPassed) return [left];
    await sleep(POLL_MS);
  }
  // A snapshot may publish tokens, packages and erasures later than the log.
  let expected = acts.flatMap((act) => act.expectedStatuses());
  for (;;) {
    const late = await differingStatuses(world.publicUrl, expected);
    if (late.length === 0 || deadline.hasPassed) return late.map(({ problem }) => problem);
    expected = late;
    await sleep(POLL_MS);
  }
}

/** Repeats every act that has no acknowledgement. */
export const repeatActs = (client: Client): Promise<void> =>
  forEach(
    client.acts.sent.filter((act) => !act.acknowledged),
    async (act) => void (await client.acts.send(act)),
  );

async function followBatch(client: Client, batch: Batch): Promise<void> {
  if (batch.batchId === null && !(await client.send(batch))) return;
  try {
    const done = await batchResults(client, batch);
    if (done !== null) batch.proofIds = done;
  } catch {
    // The next call of followBatch tries again.
  }
}

/** The proof ids of a batch's items in order; null while some are pending. */
export async function batchResults(client: Client, batch: Batch): Promise<string[] | null> {
  // Any engine except the one that accepted the batch.
  const url = `${client.urlFor(batch)}/v1/batches/${batch.batchId ?? ''}`;
  const signal = AbortSignal.timeout(10_000);
  const response = await fetch(url, { headers: client.headers, signal });
  if (response.status === 404) {
    client.records.broken.push(`batch ${batch.batchId ?? ''} is unknown now`);
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
  if (results.some(({ index }, at) => index !== at)) {
    client.records.broken.push(`batch ${batch.batchId ?? ''} has results in another order`);
  }
  if (ids.length !== batch.items || ids.includes('')) {
    client.records.broken.push(`batch ${batch.batchId ?? ''} ended without results for all items`);
  }
  return ids;
}

/** Describes what the programs have not finished yet; null when they have finished everything. */
async function unfinished(world: World): Promise<string | null> {
  const { sql } = world.database;
  const [row] = await sql<
    {
      pending: number;
      ending: number;
      unverified: number;
      reported: number;
    }[]
  >`
    select ((select count(*) from svc.intake_pending)
        + (select coalesce(sum(admissions), 0) from svc.chunk_pending))::int as pending,
      ((select count(*) from svc.share_due) + (select count(*) from svc.expiry)
        + (select count(*) from svc.erasure_due))::int as ending,
      (tree_size - coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0))::int
        as unverified,
      (select coalesce(max(leaf_index) + 1, 0) from svc.log_entry where kind <= 4)::int as reported
    from svc.log_head`;
  if (row === undefined) return 'the log has no head';
  if (row.pending > 0) return `${String(row.pending)} admissions are pending`;
  if (row.unverified > 0) return `${String(row.unverified)} leaves are not verified`;
  if (row.ending > 0) return `${String(row.ending)} expiries are not recorded`;
  const { tree_size: published } = await readiness(world.publicUrl);
  const [last] = await verdictEntries(sql, published, 1);
  const verdict = last && parseEntry(last.body);
  const covered = verdict?.type === 'verdict' ? verdict.to : 0;
  const behind = row.reported - covered;
  if (behind > 0) return `${String(behind)} leaves have no public verdict`;
  const { snapshot } = locationSchema.parse(
    JSON.parse(Buffer.from((await world.store.read(LOCATION_PATH)) ?? []).toString()),
  );
  const expiredThrough = parseTime(snapshot.logs[0]!.expired_through);
  const isExpiryPublic = !(await hasExpiredBetween(sql, expiredThrough, Date.now()));
  return isExpiryPublic ? null : 'an expiry is not published';
}

export const singlesOf = (all: readonly ClientRequest[]): Single[] =>
  all.filter((one) => one.kind === 'single');
export const batchesOf = (all: readonly ClientRequest[]): Batch[] =>
  all.filter((one) => one.kind === 'batch');
