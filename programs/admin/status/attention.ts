import type { Facts } from './facts.js';

/** Something that is not as it should be, and what to do about it. */
export interface Attention {
  what: string;
  do: string;
}

/** Longer than anything takes by itself, with the sweeper and a program that was just restarted. */
const PATIENCE_MS = 30_000;

/** These keep a connection for as long as they run. */
const ALWAYS_CONNECTED = ['worker', 'verifier', 'publisher'] as const;

const seconds = (ms: number | null): string => `${String(Math.round((ms ?? 0) / 1_000))} s`;

/** What wants attention, the worst first. */
export function attentionFor(facts: Facts): Attention[] {
  const found: Attention[] = [];
  const when = (is: boolean, what: string, todo: string): void => {
    if (is) found.push({ what, do: todo });
  };
  const { pending, batches, verifier, checkpoint, log } = facts;
  when(
    verifier.failing_leaves > 0,
    `${String(verifier.failing_leaves)} leaves do not verify`,
    "stored bytes were changed: find the leaf in the verifier's alarm, and compare with a backup (npm run fsck)",
  );
  when(facts.policy === null, 'no policy is in force', 'policy put, then policy activate');
  when(
    facts.aep_keys_active.length === 0,
    'no AEP key is active: nothing can be signed',
    'aep-key activate <key.pem>',
  );
  for (const key of facts.worker_keys) {
    when(
      facts.aep_keys_active.length > 0 && !facts.aep_keys_active.includes(key),
      `a worker's key is not active, and it settles nothing: ${key}`,
      'aep-key activate <key.pem>, or restart the worker with the active key',
    );
  }
  for (const program of ALWAYS_CONNECTED) {
    const role = facts.roles.find((one) => one.role === `svc_${program}`);
    const isThere = role !== undefined && role.connections > 0;
    when(!isThere, `no ${program} is connected`, `start one, or read what the last one wrote`);
  }
  when(
    (pending.oldest_ms ?? 0) > PATIENCE_MS && batches.open === 0,
    `an admission has waited ${seconds(pending.oldest_ms)}`,
    'read what the workers write; npm run board shows the queue',
  );
  when(
    verifier.lag > 0 && (verifier.verified_ms_ago ?? Infinity) > PATIENCE_MS,
    `the verifier has ${String(verifier.lag)} leaves to go and does not move`,
    'read what the verifier writes: the public is told of nothing newer',
  );
  const unsigned = checkpoint === null ? log.leaves : checkpoint.lag;
  when(
    unsigned > 0 && verifier.lag < unsigned && (checkpoint?.age_ms ?? Infinity) > PATIENCE_MS,
    `${String(unsigned)} leaves are in no signed checkpoint`,
    'read what the publisher writes: it signs with every tick',
  );
  return found;
}
