import { addGauges, distribution, SECONDS, Tally, type Registry } from '#runtime/ops/instruments';
import type { QueueState } from '#runtime/queue/queues';
import { pendingNow } from '#sql/ops/queries';
import type { AdmitWorker } from '#workers/admit/worker';
import type { AdmitMetrics, Stage } from '#workers/admit/context';
import type { Readings } from './readings.js';

const STAGES: readonly Stage[] = ['load', 'prepare', 'lock', 'append', 'commit'];
const OUTCOMES = ['admitted', 'denied', 'approval_required', 'refused'] as const;
const GROUPS = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000];

export function admitMetrics(registry: Registry): AdmitMetrics {
  const outcomes = new Tally(
    registry,
    'svc_admission_outcomes_total',
    'Committed admissions by outcome',
    ['outcome'],
  );
  for (const outcome of OUTCOMES) outcomes.of({ outcome });
  const requeued = new Tally(
    registry,
    'svc_requeued_total',
    'Stale admissions that were requeued',
    ['kind'],
  );
  for (const kind of ['admissions', 'batches', 'revocations']) requeued.of({ kind });
  const items = distribution(
    registry,
    'svc_group_items',
    'Admissions committed in one transaction',
    GROUPS,
  );
  const stages = distribution(
    registry,
    'svc_stage_seconds',
    'Time that a group of admissions spends in each stage',
    SECONDS.short,
    ['stage'],
  );
  for (const stage of STAGES) stages.zero({ stage });
  const lockWait = distribution(
    registry,
    'svc_append_lock_wait_seconds',
    'Wait time for the append lock',
    SECONDS.short,
  );
  return {
    committed: (counts) => {
      for (const outcome of OUTCOMES) outcomes.of({ outcome }).n += counts[outcome];
      const all = OUTCOMES.reduce((sum, outcome) => sum + counts[outcome], 0);
      // 0 when another worker had committed all admissions of the group.
      if (all > 0) items.observe(all);
    },
    took: (stage, ms) => {
      stages.observe({ stage }, ms / 1_000);
      if (stage === 'lock') lockWait.observe(ms / 1_000);
    },
    requeued: (kind, count) => {
      requeued.of({ kind }).n += count;
    },
  };
}

/** Gauges of pending admissions: in the registry, which is authoritative, and in the queues. */
export function waitingGauges(
  registry: Registry,
  readings: Readings,
  worker: Pick<AdmitWorker, 'isQueueUp' | 'queues'>,
): void {
  const pending = readings.every(5_000, 'pending', () => pendingNow(readings.sql));
  const queues = readings.every(5_000, 'queues', () => worker.queues());
  const found = (): [string, QueueState][] => Object.entries(queues.value ?? {});
  addGauges(registry, {
    svc_pending_admissions: ['Undecided admissions', () => pending.value?.admissions],
    svc_pending_oldest_seconds: [
      'Age of the oldest pending admission; 0 without any',
      () => pending.value && (pending.value.oldestMs ?? 0) / 1_000,
    ],
    svc_queue_up: [
      'Whether the queue answers; without it the worker finds pending admissions in the registry',
      () => Number(worker.isQueueUp()),
    ],
    svc_queue_jobs: [
      'Jobs in the queues, by state',
      () =>
        found().flatMap(([queue, { jobs }]) =>
          Object.entries(jobs).map(([state, value]) => ({ labels: { queue, state }, value })),
        ),
      ['queue', 'state'],
    ],
    svc_queue_oldest_seconds: [
      'Age of the oldest job in the queues; 0 without any',
      () =>
        found().map(([queue, { oldestAt }]) => ({
          labels: { queue },
          value: oldestAt === null ? 0 : Math.max(0, (Date.now() - oldestAt) / 1_000),
        })),
      ['queue'],
    ],
  });
}
