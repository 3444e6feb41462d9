import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { engineHeaders } from '../service/headers.js';
import { endedEarly, startBatchLoad } from '../batches/batch-load.js';
import { bodyAt, bodyTemplates } from './execute-bodies.js';
import { nextPublication, untilPublished } from '../service/publications.js';
import { readiness } from '../service/readiness.js';
import { createSecondTenant, type BenchTenant } from './second-tenant.js';
import { executeOnce } from './single-execute.js';
import type { BenchStack } from '../service/stack.js';
import { steadily } from './steadily.js';
import { Unexpected } from '../rows/unexpected.js';

export interface FairnessPlan {
  /** Single executions of the neighbour, a second. */
  perSecond: number;
  /** How many with nothing else going on, and how many while the batches run. */
  idle: number;
  loaded: number;
  /** Items of each batch, and of all that are accepted and not public yet. */
  items: number;
  underWay: number;
}

export interface FairnessFound extends FairnessPlan {
  /** Milliseconds from request to receipt, of each. */
  idleMs: number[];
  loadedMs: number[];
  /** Beside reads of the hostile tenant, and how many of these were answered a second. */
  besideReadsMs: number[];
  readRate: number;
  /** Items of the batches that became public a second, meanwhile. */
  batchRate: number;
  unexpected: Unexpected;
}

/** Requests in flight of the hostile tenant: far more than it may have connections. */
const READS_AT_ONCE = 64;
const READ_PATH = '/v1/proofs?status=REVOKED&limit=1';

/** Executions before those that count: connections are made, and code is compiled. */
const WARM_UP = 20;

/**
 * One tenant sends a single execution now and then: first without load, then beside another tenant's
 * batches, then beside that tenant's reads.
 */
export async function runFairness(
  stack: BenchStack,
  plan: FairnessPlan,
  signal: AbortSignal,
): Promise<FairnessFound> {
  const { engineUrl, publicUrl, registry } = stack;
  const neighbour = await createSecondTenant(registry);
  const templates = bodyTemplates(neighbour);
  const unexpected = new Unexpected();
  const trickle = async (count: number): Promise<number[]> => {
    const run = randomBytes(6).toString('hex');
    const took: number[] = [];
    await steadily({ perSecond: plan.perSecond, count, signal }, async (n) => {
      const body = bodyAt(templates, run, n);
      const answered = await executeOnce(engineUrl, neighbour, body, unexpected);
      if (answered !== null) took.push(answered.ms);
    });
    return took;
  };
  await trickle(WARM_UP);
  const idleMs = await trickle(plan.idle);

  const { apiKey, tenantId } = registry;
  const source = { tenantId, run: randomBytes(6).toString('hex') };
  const { items, underWay } = plan;
  const task = { engineUrl, publicUrl, apiKey, source, items, underWay };
  const before = await readiness(publicUrl);
  const load = startBatchLoad(task, { onSent: () => undefined });
  const besides = async (): Promise<{ loadedMs: number[]; batchRate: number }> => {
    // Busy once the first of it is public: until then stages wait for those before them.
    const from = await untilPublished(publicUrl, before.proofs + 1, signal);
    const loadedMs = await trickle(plan.loaded);
    const to = await nextPublication(publicUrl, signal);
    const own = loadedMs.length;
    const batchRate = ((to.proofs - from.proofs - own) * 1000) / (to.at - from.at);
    for (const [code, count] of Object.entries(load.waited)) unexpected.add(`batch ${code}`, count);
    return { loadedMs, batchRate };
  };
  const beside = await Promise.race([besides(), endedEarly(load)]).finally(() =>
    // What it failed with has been thrown already.
    load.stop().catch(() => undefined),
  );

  await untilSettled(publicUrl, signal);
  const reads = startReads(engineUrl, { tenantId, apiKey }, unexpected, signal);
  const besideReadsMs = await trickle(plan.loaded);
  const readRate = await reads.stop();
  return { ...plan, idleMs, ...beside, besideReadsMs, readRate, unexpected };
}

/** Until nothing more of the batches becomes public. */
async function untilSettled(publicUrl: string, signal: AbortSignal): Promise<void> {
  for (let before = -1; ;) {
    const { proofs } = await readiness(publicUrl);
    if (proofs === before) return;
    before = proofs;
    await sleep(3_000, undefined, { signal });
  }
}

/** Sends reads without a pause, whatever they are answered; `stop` returns answers per second. */
function startReads(
  engineUrl: string,
  { apiKey, tenantId }: BenchTenant,
  unexpected: Unexpected,
  signal: AbortSignal,
): { stop(): Promise<number> } {
  const stopping = new AbortController();
  const began = performance.now();
  let answered = 0;
  const loop = async (): Promise<void> => {
    while (!stopping.signal.aborted && !signal.aborted) {
      const response = await fetch(engineUrl + READ_PATH, {
        headers: engineHeaders(apiKey, tenantId),
      });
      await response.arrayBuffer();
      // 503: its own reads wait for each other too long, which is what the limit is for.
      if (![200, 503].includes(response.status)) unexpected.add(`read ${String(response.status)}`);
      answered += 1;
    }
  };
  const loops = Promise.all(Array.from({ length: READS_AT_ONCE }, loop));
  return {
    stop: async () => {
      stopping.abort();
      await loops;
      return (answered * 1000) / (performance.now() - began);
    },
  };
}
