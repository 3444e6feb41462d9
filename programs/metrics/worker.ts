import { distribution, SECONDS, Tally } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';
import type { AdmitMetrics, Settled, Stage } from '#workers/admit/metrics';

const STAGES: readonly Stage[] = ['load', 'prepare', 'lock', 'append', 'commit'];
const GROUPS = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000];

export function admitMetrics(registry: Registry): AdmitMetrics {
  const settled = new Tally(
    registry,
    { name: 'svc_settled_total', help: 'Admissions settled, by what became of them' },
    ['outcome'],
  );
  const outcomes = {
    admitted: settled.of({ outcome: 'admitted' }),
    denied: settled.of({ outcome: 'denied' }),
    refused: settled.of({ outcome: 'refused' }),
  };
  const swept = new Tally(
    registry,
    { name: 'svc_swept_total', help: 'What the sweeper found waiting for too long' },
    ['kind'],
  );
  const kinds = {
    admissions: swept.of({ kind: 'admissions' }),
    batches: swept.of({ kind: 'batches' }),
    revocations: swept.of({ kind: 'revocations' }),
  };
  const items = distribution(
    registry,
    { name: 'svc_group_items', help: 'Admissions that one transaction settled' },
    GROUPS,
  );
  const stages = distribution(
    registry,
    { name: 'svc_stage_seconds', help: 'What a group of admissions spent in each stage' },
    SECONDS.short,
    ['stage'],
  );
  for (const stage of STAGES) stages.zero({ stage });
  const lockWait = distribution(
    registry,
    { name: 'svc_append_lock_wait_seconds', help: 'Waits for the append lock' },
    SECONDS.short,
  );
  return {
    committed: ({ admitted, denied, refused }: Settled) => {
      outcomes.admitted.n += admitted;
      outcomes.denied.n += denied;
      outcomes.refused.n += refused;
      const all = admitted + denied + refused;
      // Somebody else had settled all of it.
      if (all > 0) items.observe(all);
    },
    took: (stage, ms) => {
      stages.observe({ stage }, ms / 1_000);
      if (stage === 'lock') lockWait.observe(ms / 1_000);
    },
    swept: (kind, count) => {
      kinds[kind].n += count;
    },
  };
}
