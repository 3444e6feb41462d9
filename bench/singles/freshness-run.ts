import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { endedEarly, startBatchLoad } from '../batches/batch-load.js';
import { bodyAt, bodyTemplates } from './execute-bodies.js';
import { sendPaced } from '../batches/paced-batches.js';
import { nextPublication, untilPublished } from '../service/publications.js';
import { readiness } from '../service/readiness.js';
import { executeOnce } from './single-execute.js';
import type { BenchStack } from '../service/stack.js';
import { steadily } from './steadily.js';
import { Unexpected } from '../rows/unexpected.js';
import { untilValid } from './until-valid.js';

export interface FreshnessPlan {
  /** How long the service is kept full, to know what half of it is: items of a batch, and of all under way. */
  full: { seconds: number; items: number; underWay: number };
  /** Single executions whose way to the public is followed, and how many of them begin a second. */
  samples: number;
  perSecond: number;
}

export interface FreshnessFound {
  /** Milliseconds from the receipt to the public verdict, of each sample. */
  ms: number[];
  /** Proofs a second that became public when it was full, and that were sent when it was measured. */
  fullRate: number;
  sentRate: number;
  unexpected: Unexpected;
}

/**
 * Fills the service to see what it takes, then sends half of that, steadily, and follows single
 * executions from their receipts to their public verdicts.
 */
export async function runFreshness(
  stack: BenchStack,
  plan: FreshnessPlan,
  signal: AbortSignal,
): Promise<FreshnessFound> {
  const { engineUrl, publicUrl, registry } = stack;
  const fullRate = await fill(stack, plan.full, signal);
  const unexpected = new Unexpected();
  const templates = bodyTemplates(registry);
  const run = randomBytes(6).toString('hex');
  const half = new AbortController();
  const sending = sendPaced(stack, fullRate / 2, AbortSignal.any([half.signal, signal]));
  // It is awaited at the end, and what it failed with is thrown there.
  sending.catch(() => undefined);
  const ms: number[] = [];
  const follow = async (n: number): Promise<void> => {
    const body = bodyAt(templates, run, n);
    const answered = await executeOnce(engineUrl, registry, body, unexpected);
    if (answered === null) return;
    const valid = await untilValid(publicUrl, answered.receipt.registry_proof_id, unexpected);
    if (valid !== null) ms.push(valid - answered.at);
  };
  try {
    const { samples, perSecond } = plan;
    await steadily({ perSecond, count: samples, signal }, follow);
  } finally {
    half.abort();
  }
  const sent = await sending;
  for (const [what, count] of sent.refused) unexpected.add(`batch ${what}`, count);
  return { ms, fullRate, sentRate: sent.rate, unexpected };
}

const DRAIN_MS = 60_000;

/**
 * Proofs a second that became public while there was always more to do. Returns when all of them are.
 *
 * @throws Error when they are not, within a minute
 */
async function fill(
  stack: BenchStack,
  { seconds, items, underWay }: FreshnessPlan['full'],
  signal: AbortSignal,
): Promise<number> {
  const { engineUrl, publicUrl, registry } = stack;
  const { apiKey, tenantId } = registry;
  const source = { tenantId, run: randomBytes(6).toString('hex') };
  const task = { engineUrl, publicUrl, apiKey, source, items, underWay };
  const { proofs: before } = await readiness(publicUrl);
  const load = startBatchLoad(task, { onSent: () => undefined });
  const besides = async (): Promise<number> => {
    await nextPublication(publicUrl, signal);
    const from = await nextPublication(publicUrl, signal);
    await sleep(seconds * 1000, undefined, { signal });
    const to = await nextPublication(publicUrl, signal);
    return ((to.proofs - from.proofs) * 1000) / (to.at - from.at);
  };
  try {
    const rate = await Promise.race([besides(), endedEarly(load)]);
    await load.stop();
    const sent = load.sent.reduce((sum, batch) => sum + batch.items, 0);
    const drained = AbortSignal.any([signal, AbortSignal.timeout(DRAIN_MS)]);
    await untilPublished(publicUrl, before + sent, drained);
    return rate;
  } finally {
    // What it failed with has been thrown already.
    await load.stop().catch(() => undefined);
  }
}
