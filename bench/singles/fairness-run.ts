import { randomBytes } from 'node:crypto';
import { endedEarly, startBatchLoad } from '../batches/batch-load.js';
import { bodyAt, bodyTemplates } from './execute-bodies.js';
import { nextPublication, untilPublished } from '../service/publications.js';
import { readiness } from '../service/readiness.js';
import { createSecondTenant } from './second-tenant.js';
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
  /** Items of the batches that became public a second, meanwhile. */
  batchRate: number;
  unexpected: Unexpected;
}

/** Executions before those that count: connections are made, and code is compiled. */
const WARM_UP = 20;

/** One tenant sends alone, now and then, first by itself and then while another fills the service. */
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
  const besides = async (): Promise<FairnessFound> => {
    // Busy once the first of it is public: until then stages wait for those before them.
    const from = await untilPublished(publicUrl, before.proofs + 1, signal);
    const loadedMs = await trickle(plan.loaded);
    const to = await nextPublication(publicUrl, signal);
    const own = loadedMs.length;
    const batchRate = ((to.proofs - from.proofs - own) * 1000) / (to.at - from.at);
    for (const [code, count] of Object.entries(load.waited)) unexpected.add(`batch ${code}`, count);
    return { ...plan, idleMs, loadedMs, batchRate, unexpected };
  };
  try {
    return await Promise.race([besides(), endedEarly(load)]);
  } finally {
    // What it failed with has been thrown already.
    await load.stop().catch(() => undefined);
  }
}
