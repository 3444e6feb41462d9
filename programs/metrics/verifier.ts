import { addGauges, Tally, type Registry } from '#runtime/ops/instruments';
import { verifierPlace } from '#sql/ops/queries';
import type { VerifierMetrics } from '#workers/verify/context';
import type { Readings } from './readings.js';

export function verifierMetrics(registry: Registry): VerifierMetrics {
  const leaves = new Tally(
    registry,
    'svc_verified_leaves_total',
    'Leaves verified, for the first time (log) or again (scrub)',
    ['round', 'outcome'],
  );
  const count = (round: 'log' | 'scrub') => ({
    pass: leaves.of({ round, outcome: 'pass' }),
    fail: leaves.of({ round, outcome: 'fail' }),
  });
  const counts = { log: count('log'), scrub: count('scrub') };
  const failures = new Tally(
    registry,
    'svc_verification_failures_total',
    'Recorded verification failures, without voided proofs',
  ).of({});
  return {
    verified: (round, passed, failed) => {
      counts[round].pass.n += passed;
      counts[round].fail.n += failed;
    },
    failed: (n) => {
      failures.n += n;
    },
  };
}

export function verifierGauges(registry: Registry, readings: Readings): void {
  const place = readings.every(5_000, 'verifier', () => verifierPlace(readings.sql));
  addGauges(registry, {
    svc_verifier_lag_leaves: ['Log leaves without a verdict', () => place.value?.lag],
    svc_scrub_position: [
      'Index of the leaf that the scrubber verifies next',
      () => place.value?.scrubbedTo,
    ],
    svc_failing_leaves: [
      'Leaves whose last verdict is `fail`, without voided proofs; counted up to 10,000',
      () => place.value?.failing,
    ],
    svc_voided_leaves: [
      'Leaves that fail only because a compromised key signed them; counted up to 10,000',
      () => place.value?.voided,
    ],
  });
}
