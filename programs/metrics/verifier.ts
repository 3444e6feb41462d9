import { Tally } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';
import type { VerifierMetrics } from '#workers/verify/metrics';

export function verifierMetrics(registry: Registry): VerifierMetrics {
  const leaves = new Tally(
    registry,
    {
      name: 'svc_verified_leaves_total',
      help: 'Leaves verified: for the first time (log), or once more (scrub)',
    },
    ['round', 'outcome'],
  );
  const count = (round: 'log' | 'scrub') => ({
    pass: leaves.of({ round, outcome: 'pass' }),
    fail: leaves.of({ round, outcome: 'fail' }),
  });
  const counts = { log: count('log'), scrub: count('scrub') };
  const failures = new Tally(registry, {
    name: 'svc_verification_failures_total',
    help: 'Verdicts written that say that a leaf does not verify',
  }).of({});
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
