import type { AdmissionOutcome, EngineMetrics } from '#api/engine/context';
import { Tally, type Registry } from '#runtime/ops/instruments';
import { httpMetrics } from './http.js';

const LANES = { 1: 'execute', 2: 'agent', batch: 'batch' } as const;
const OUTCOMES: readonly AdmissionOutcome[] = ['accepted', 'replayed', 'refused'];

export function engineMetrics(registry: Registry): EngineMetrics {
  const http = httpMetrics(registry, 'engine');
  const help = 'Submitted admissions: accepted, duplicate or rejected';
  const admissions = new Tally(registry, 'svc_admissions_total', help, ['lane', 'outcome']);
  // Initialized to 0, because Prometheus does not count the first value of a new counter as an increase.
  for (const lane of Object.values(LANES)) {
    for (const outcome of OUTCOMES) admissions.of({ lane, outcome });
  }
  return {
    answered: (route, method, status, limit, ms) => {
      http.counted(route, method, status, limit);
      http.took(route, ms);
    },
    admissions: (lane, outcome, count) => {
      admissions.of({ lane: LANES[lane], outcome }).n += count;
    },
  };
}
