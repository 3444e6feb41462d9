import { describe, expect, it } from 'vitest';
import { statementOf, statementsOf } from '#api/engine/proofs/statement';
import { verdictStatementSchema } from '#protocol/schemas/verdict';
import type { ArtifactKind } from '#protocol/status';
import type { RevocationInHistory, VerdictInHistory } from '#protocol/history';

const verdict = (treeSize: number, rest: Partial<VerdictInHistory> = {}): VerdictInHistory => ({
  verdictId: treeSize,
  frontier: false,
  treeSize,
  outcome: 'pass',
  expired: [],
  verifiedAt: Date.UTC(2026, 10, 20) + treeSize,
  failedChecks: [],
  ...rest,
});
const frontier = (treeSize: number) => verdict(treeSize, { frontier: true });
const revoked = (leafIndex: number, kind: ArtifactKind): RevocationInHistory => ({
  leafIndex,
  kind,
  at: 0,
  reasonHash: '00'.repeat(32),
});

const ADMIT = { effect: 'ADMIT', isOutcome: false } as const;
const DENY = { effect: 'DENY', isOutcome: false } as const;

const ALL = {
  proof: 'VALID',
  passport: 'PASS',
  certificate: 'VERIFIED',
  trust: 'TRUST_ESTABLISHED',
};

describe('statementOf', () => {
  it('asserts nothing before verification', () => {
    expect(statementOf(ADMIT, { verdicts: [], revocations: [revoked(4, 'trust')] })).toEqual({
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      can_assert_validity: false,
      artifacts: {
        proof: 'BACKEND_LOOKUP_REQUIRED',
        passport: 'BACKEND_LOOKUP_REQUIRED',
        certificate: 'BACKEND_LOOKUP_REQUIRED',
        trust: 'BACKEND_LOOKUP_REQUIRED',
      },
      verified_at: null,
      log_size: 5,
    });
    expect(statementsOf(ADMIT, { verdicts: [], revocations: [] })).toEqual([]);
  });

  it('combines the last verdict with every revocation in the log', () => {
    const verdicts = [frontier(3), verdict(9, { expired: ['trust'] })];
    const revocations = [revoked(5, 'certificate'), revoked(12, 'certificate')];
    const said = statementOf(ADMIT, { verdicts, revocations });
    expect(said).toEqual({
      verification_status: 'VALID',
      can_assert_validity: true,
      artifacts: { ...ALL, certificate: 'REVOKED', trust: 'REVOKED' },
      verified_at: '2026-11-20T00:00:00.009Z',
      // A repeated revocation has no effect, so it does not extend log_size.
      log_size: 9,
    });
    expect(verdictStatementSchema.parse(said)).toEqual(said);
    const later = [...revocations, revoked(20, 'proof')];
    expect(statementOf(ADMIT, { verdicts, revocations: later })).toMatchObject({
      verification_status: 'REVOKED',
      can_assert_validity: false,
      log_size: 21,
    });
  });

  it('asserts only the proof of a denial', () => {
    expect(statementOf(DENY, { verdicts: [frontier(3)], revocations: [] })).toMatchObject({
      verification_status: 'VALID',
      artifacts: { proof: 'VALID', passport: 'BACKEND_LOOKUP_REQUIRED' },
    });
  });

  it('statementsOf combines each verdict with later revocations', () => {
    const verdicts = [frontier(3), verdict(9, { expired: ['trust'] })];
    const revocations = [revoked(5, 'passport'), revoked(12, 'proof')];
    const said = statementsOf(ADMIT, { verdicts, revocations });
    expect(
      said.map(({ log_size, artifacts: { proof, passport, trust } }) =>
        [log_size, proof, passport, trust].join(' '),
      ),
    ).toEqual([
      '3 VALID PASS TRUST_ESTABLISHED',
      '6 VALID REVOKED REVOKED',
      '13 REVOKED REVOKED REVOKED',
      // The second verdict has seen leaf 5: without that revocation it was never given.
      '9 VALID REVOKED REVOKED',
      '13 REVOKED REVOKED REVOKED',
    ]);
    expect(said).toContainEqual(statementOf(ADMIT, { verdicts, revocations }));
  });

  it('statementsOf has no VALID for a leaf that failed in the same transaction', () => {
    const failed = verdict(3, { outcome: 'fail', verdictId: 4 });
    const statuses = (verdicts: VerdictInHistory[]) =>
      statementsOf(ADMIT, { verdicts, revocations: [] }).map((one) => one.verification_status);
    expect(statuses([frontier(3), failed])).toEqual(['BACKEND_LOOKUP_REQUIRED']);
    const later = { ...failed, verifiedAt: failed.verifiedAt + 5 };
    expect(statuses([frontier(3), later])).toEqual(['VALID', 'BACKEND_LOOKUP_REQUIRED']);
  });
});
