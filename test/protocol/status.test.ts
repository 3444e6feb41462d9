import { describe, expect, it } from 'vitest';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  EFFECTS,
  isReportAnswer,
  packageStatus,
  STATUSES,
  verificationStatus,
  type ArtifactKind,
  type StatusFacts,
} from '#protocol/status';

const subsets: ArtifactKind[][] = Array.from({ length: 16 }, (_, bits) =>
  ARTIFACT_KINDS.filter((_, i) => (bits >> i) & 1),
);

/** All facts: 4 kinds, 3 effects, outcome or not, 3 verdicts, 16 revoked and 16 expired sets. */
const everything: StatusFacts[] = ARTIFACT_KINDS.flatMap((kind) =>
  EFFECTS.flatMap((effect) =>
    [false, true].flatMap((isOutcome) =>
      (['pass', 'fail', 'none'] as const).flatMap((verdict) =>
        subsets.flatMap((revoked) =>
          subsets.map((expired) => ({ kind, effect, isOutcome, verdict, revoked, expired })),
        ),
      ),
    ),
  ),
);

/** The artifacts on which each artifact depends, including the artifact itself. */
const DEPENDS_ON: Record<ArtifactKind, ArtifactKind[]> = {
  proof: ['proof'],
  passport: ['proof', 'passport'],
  certificate: ['proof', 'passport', 'certificate'],
  trust: ['proof', 'passport', 'certificate', 'trust'],
};
const POSITIVE = {
  proof: 'VALID',
  passport: 'PASS',
  certificate: 'VERIFIED',
  trust: 'TRUST_ESTABLISHED',
};

describe('verificationStatus', () => {
  it('follows the documented rules for all facts', () => {
    expect(everything).toHaveLength(4 * 3 * 2 * 3 * 16 * 16);
    for (const facts of everything) {
      const ended = (set: readonly ArtifactKind[]) =>
        DEPENDS_ON[facts.kind].some((kind) => set.includes(kind));
      let expected: string;
      if (facts.verdict !== 'pass') expected = 'BACKEND_LOOKUP_REQUIRED';
      else if ((facts.effect !== 'ADMIT' || facts.isOutcome) && facts.kind !== 'proof')
        expected = 'BACKEND_LOOKUP_REQUIRED';
      else if (ended(facts.revoked)) expected = 'REVOKED';
      else if (ended(facts.expired)) expected = 'EXPIRED';
      else expected = POSITIVE[facts.kind];
      expect(verificationStatus(facts), JSON.stringify(facts)).toBe(expected);
    }
  });

  it('allows assertion of validity only for PASS, VALID, VERIFIED and TRUST_ESTABLISHED', () => {
    const asserting = STATUSES.filter(canAssertValidity);
    expect([...asserting].sort()).toEqual(['PASS', 'TRUST_ESTABLISHED', 'VALID', 'VERIFIED']);
    for (const unknown of ['', 'valid', 'VALID ', 'toString', '__proto__', 'OK']) {
      expect(canAssertValidity(unknown)).toBe(false);
    }
  });
});

describe('packageStatus', () => {
  const sets = STATUSES.flatMap((a) => [
    [a],
    ...STATUSES.flatMap((b) => [[a, b], ...STATUSES.map((c) => [a, b, c])]),
  ]);

  it('follows the documented rules for every package of up to three members', () => {
    expect(sets).toHaveLength(8 + 64 + 512);
    expect(packageStatus([])).toBe('BACKEND_LOOKUP_REQUIRED');
    const good = ['PASS', 'TRUST_ESTABLISHED', 'VALID', 'VERIFIED'];
    for (const members of sets) {
      let expected = 'TRUST_ESTABLISHED';
      if (members.some((status) => status === 'EXPIRED')) expected = 'EXPIRED';
      if (members.some((status) => !good.includes(status) && status !== 'EXPIRED')) {
        expected = 'BACKEND_LOOKUP_REQUIRED';
      }
      if (members.some((status) => status === 'REVOKED')) expected = 'REVOKED';
      expect(packageStatus(members), members.join()).toBe(expected);
    }
  });
});

it('isReportAnswer > distinguishes a proof of an outcome from an action, a denial and a package', () => {
  const [proof_id, certificate_id] = ['00', 'cert_00'];
  expect(isReportAnswer({ effect: 'ADMIT' }, { proof_id })).toBe(true);
  expect(isReportAnswer({ effect: 'ADMIT' }, { proof_id, certificate_id })).toBe(false);
  expect(isReportAnswer({ effect: 'DENY' }, { proof_id })).toBe(false);
  expect(isReportAnswer({ effect: 'ADMIT' }, {})).toBe(false);
});
