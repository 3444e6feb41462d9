import { describe, expect, it } from 'vitest';
import { statementOf, statementsOf } from '#api/engine/proofs/stored-proof';
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

describe('statementOf', () => {
  it('combines each verdict with later revocations', () => {
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
      // The second verdict covers leaf 5, the revocation, so each of its statuses includes the revocation.
      '9 VALID REVOKED REVOKED',
      '13 REVOKED REVOKED REVOKED',
    ]);
    expect(said).toContainEqual(statementOf(ADMIT, { verdicts, revocations }));
  });

  it('omits VALID when the transaction that verified the prefix also recorded the leaf as failed', () => {
    const failed = verdict(3, { outcome: 'fail', verdictId: 4 });
    const statuses = (verdicts: VerdictInHistory[]) =>
      statementsOf(ADMIT, { verdicts, revocations: [] }).map((one) => one.verification_status);
    expect(statuses([frontier(3), failed])).toEqual(['BACKEND_LOOKUP_REQUIRED']);
    const later = { ...failed, verifiedAt: failed.verifiedAt + 5 };
    expect(statuses([frontier(3), later])).toEqual(['VALID', 'BACKEND_LOOKUP_REQUIRED']);
  });
});
