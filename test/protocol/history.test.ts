import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  eventsOf,
  mergeEvents,
  impliedEvents,
  type RevocationInHistory,
  type VerdictInHistory,
} from '#protocol/history';
import { proofEventSchema, publicEventSchema, type ProofEvent } from '#protocol/schemas/proof-view';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';

const PROOF = { acceptedAt: Date.UTC(2026, 10, 20), leafIndex: 4 };
const at = (ms: number): string => formatTime(PROOF.acceptedAt + ms);
const IN_BODY = { accepted_at: at(0), leaf_index: PROOF.leafIndex };

/** What happens to one proof, told by whoever was there. */
type Step = { after: number } & (
  | { step: 'verdict'; passes: boolean; ends: ArtifactKind | null }
  | { step: 'revocation'; kind: ArtifactKind }
);

const stepArbitrary = (leastAfter: number): fc.Arbitrary<Step> => {
  const after = fc.integer({ min: leastAfter, max: 3 });
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

/** The rows that the registry would have of it. `failsAtFirst`: in the breath of the frontier. */
function lived(failsAtFirst: boolean, steps: readonly Step[]): Life {
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

/** The same life, told by a bystander who writes down each change as it comes. */
function witnessed(failsAtFirst: boolean, steps: readonly Step[]): ProofEvent[] {
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

describe('the events of a proof', () => {
  it('are the changes that somebody would have seen who was there', () => {
    fc.assert(
      fc.property(fc.boolean(), fc.array(stepArbitrary(0), { maxLength: 12 }), (fails, steps) => {
        const events = eventsOf(PROOF, lived(fails, steps));
        expect(events).toEqual(witnessed(fails, steps));
        for (const event of events) expect(proofEventSchema.parse(event)).toEqual(event);
      }),
    );
  });

  it('begin with what is known of it before anybody has verified it', () => {
    expect(eventsOf(PROOF, { verdicts: [], revocations: [] })).toEqual(impliedEvents(IN_BODY));
  });

  it('are told without the size of the log where nothing else became of it', () => {
    const [accepted, appended, verified] = eventsOf(PROOF, lived(false, []));
    const plain = impliedEvents(IN_BODY, at(10));
    expect(plain).toEqual([accepted, appended, { event: 'verified', at: at(10) }]);
    expect(verified).toEqual({ event: 'verified', at: at(10), log_size: 10 });
    for (const event of plain) expect(publicEventSchema.parse(event)).toEqual(event);
    expect(proofEventSchema.safeParse(plain[2]).success).toBe(false);
  });
});

describe('events that were told before', () => {
  it('become the events of today, at whatever moments they were told in between', () => {
    fc.assert(
      fc.property(
        fc.boolean(),
        fc.array(stepArbitrary(0), { maxLength: 12 }),
        fc.array(fc.nat(12), { maxLength: 4 }),
        (fails, steps, moments) => {
          let told = impliedEvents(IN_BODY);
          for (const moment of moments.sort((a, b) => a - b)) {
            told = mergeEvents(told, eventsOf(PROOF, lived(fails, steps.slice(0, moment))));
          }
          const known = eventsOf(PROOF, lived(fails, steps));
          const now = mergeEvents(told, known);
          expect(now).toEqual(known);
          // Then there is nothing to tell again.
          expect(mergeEvents(now, known)).toEqual(now);
        },
      ),
    );
  });

  it('stay, and are not told twice, whatever rows the registry has lost', () => {
    fc.assert(
      fc.property(
        fc.boolean(),
        fc.array(stepArbitrary(1), { maxLength: 12 }),
        fc.infiniteStream(fc.boolean()),
        (fails, steps, lost) => {
          const whole = lived(fails, steps);
          const isLeft = () => lost.next().value === false;
          // Of the frontier and a failure in its breath one alone would say what never was.
          const first = whole.verdicts.splice(0, fails ? 2 : 1);
          const left = {
            verdicts: [...(isLeft() ? first : []), ...whole.verdicts.filter(isLeft)],
            revocations: whole.revocations.filter(isLeft),
          };
          const told = eventsOf(PROOF, lived(fails, steps));
          expect(mergeEvents(told, eventsOf(PROOF, left))).toEqual(told);
        },
      ),
    );
  });

  it('stay as they were told, also where the registry has something else in their place', () => {
    const revocation = { leafIndex: 7, kind: 'trust', at: PROOF.acceptedAt + 20 } as const;
    const told = eventsOf(PROOF, {
      ...lived(true, []),
      revocations: [{ ...revocation, reasonHash: 'a'.repeat(64) }],
    });
    const { verdicts } = lived(true, []);
    const known = eventsOf(PROOF, {
      verdicts: verdicts.map((verdict) => ({ ...verdict, failedChecks: [] })),
      revocations: [{ ...revocation, reasonHash: 'b'.repeat(64) }],
    });
    expect(mergeEvents(told, known)).toEqual(told);
  });

  it('stay also where it turns out that nothing changed', () => {
    const plain = impliedEvents(IN_BODY, at(20));
    const known = eventsOf(PROOF, lived(false, []));
    expect(mergeEvents(plain, known)).toEqual([...known, plain[2]]);
  });

  it('gain nothing but the size of the log that was not told', () => {
    const plain = impliedEvents(IN_BODY, at(10));
    const known = eventsOf(PROOF, lived(false, []));
    expect(mergeEvents(plain, known)).toEqual(known);
    expect(mergeEvents(plain, [])).toEqual(plain);
  });
});
