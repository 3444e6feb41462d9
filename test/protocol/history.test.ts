import fc from 'fast-check';
import { expect, it } from 'vitest';
import { eventsOf, type RevocationInHistory, type VerdictInHistory } from '#protocol/history';
import { proofEventSchema, type ProofEvent } from '#protocol/schemas/proof-view';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';

const PROOF = { acceptedAt: Date.UTC(2026, 10, 20), leafIndex: 4 };
const at = (ms: number): string => formatTime(PROOF.acceptedAt + ms);

/** One step in the life of a proof. */
type Step = { after: number } & (
  | { step: 'verdict'; passes: boolean; ends: ArtifactKind | null }
  | { step: 'revocation'; kind: ArtifactKind }
);

const stepArbitrary = (): fc.Arbitrary<Step> => {
  const after = fc.nat(3);
  const kind = fc.constantFrom(...ARTIFACT_KINDS);
  return fc.oneof(
    fc.record({
      step: fc.constant('verdict' as const),
      after,
      passes: fc.boolean(),
      ends: fc.option(kind, { freq: 2 }),
    }),
    fc.record({ step: fc.constant('revocation' as const), after, kind }),
  );
};

interface Life {
  verdicts: VerdictInHistory[];
  revocations: RevocationInHistory[];
}

/** The registry rows for these steps. `failsAtFirst`: fails in the prefix's transaction. */
function registryRows(failsAtFirst: boolean, steps: readonly Step[]): Life {
  const verdicts: VerdictInHistory[] = [];
  const revocations: RevocationInHistory[] = [];
  let now = PROOF.acceptedAt + 10;
  let treeSize = 10;
  const find = (passes: boolean, expired: readonly ArtifactKind[], frontier = false) =>
    verdicts.push({
      verdictId: verdicts.length + 1,
      frontier,
      treeSize,
      outcome: passes ? 'pass' : 'fail',
      expired,
      verifiedAt: now,
      failedChecks: passes ? [] : ['signature'],
    });
  find(true, [], true);
  if (failsAtFirst) find(false, []);
  for (const step of steps) {
    now += step.after;
    treeSize += 1;
    if (step.step === 'revocation') {
      const reasonHash = treeSize.toString(16).padStart(64, '0');
      revocations.push({ leafIndex: treeSize - 1, kind: step.kind, at: now, reasonHash });
    } else {
      const before = verdicts.at(-1)!.expired;
      const ends = step.ends === null || before.includes(step.ends) ? [] : [step.ends];
      find(step.passes, [...before, ...ends]);
    }
  }
  return { verdicts, revocations };
}

/** The events of these steps, recorded by an observer at each change. */
function observedEvents(failsAtFirst: boolean, steps: readonly Step[]): ProofEvent[] {
  const found: ProofEvent[] = [];
  const logged: ProofEvent[] = [];
  let now = 10;
  let log_size = 10;
  let passes: boolean | null = null;
  const over = new Set<ArtifactKind>();
  const hear = (verdict: { passes: boolean; ends: ArtifactKind | null }) => {
    const seen = { at: at(now), log_size };
    if (verdict.passes && passes !== true) found.push({ event: 'verified', ...seen });
    if (!verdict.passes && passes !== false) {
      found.push({ event: 'failed', ...seen, checks: ['signature'] });
    }
    passes = verdict.passes;
    if (verdict.ends === null || over.has(verdict.ends)) return;
    over.add(verdict.ends);
    found.push({ event: 'expired', ...seen, artifacts: [verdict.ends] });
  };
  hear({ passes: !failsAtFirst, ends: null });
  for (const step of steps) {
    now += step.after;
    log_size += 1;
    if (step.step === 'verdict') hear(step);
    else {
      const reason_hash = log_size.toString(16).padStart(64, '0');
      const leaf_index = log_size - 1;
      logged.push({ event: 'revoked', at: at(now), artifact: step.kind, leaf_index, reason_hash });
    }
  }
  const times = [...new Set([...found, ...logged].map(timeOf))].sort();
  return [
    { event: 'accepted', at: at(0) },
    { event: 'appended', leaf_index: 4 },
    ...times.flatMap((time) => [...found, ...logged].filter((event) => timeOf(event) === time)),
  ];
}

const timeOf = (event: ProofEvent): string => ('at' in event ? event.at : '');

it('eventsOf > lists the changes that an observer of the published statuses would record', () => {
  fc.assert(
    fc.property(fc.boolean(), fc.array(stepArbitrary(), { maxLength: 12 }), (fails, steps) => {
      const events = eventsOf(PROOF, registryRows(fails, steps));
      expect(events).toEqual(observedEvents(fails, steps));
      for (const event of events) expect(proofEventSchema.parse(event)).toEqual(event);
    }),
  );
});
