import {
  effectiveVerdicts,
  type RevocationInHistory,
  type VerdictInHistory,
} from '#protocol/history';
import type { VerdictStatement } from '#protocol/schemas/verdict';
import {
  canAssertValidity,
  verificationStatus,
  type ArtifactKind,
  type Decided,
  type Outcome,
} from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { ProofHistory } from '#sql/proofs/read';

type StatusHistory = Pick<
  ProofHistory,
  'verdicts' | 'revocations' | 'isDamaged' | 'isErased' | 'voidedAt'
>;

/**
 * Current statement about a proof, from the latest verdict, all logged revocations and the key
 * compromise that voids it. Asserts nothing when a stored revocation is damaged, the payload is
 * erased or the proof is voided, even before the verification system records it.
 */
export function statementOf(decided: Decided, history: StatusHistory): VerdictStatement {
  const { isDamaged = false, isErased = false, voidedAt = null, revocations, verdicts } = history;
  const last = verdicts.at(-1);
  const override: Outcome | null = isDamaged ? 'fail' : isErased ? 'erased' : null;
  const verdict = last === undefined || override === null ? last : { ...last, outcome: override };
  return statement(decided, verdict, {
    revocations: firstOfEachKind(revocations),
    // With a damaged revocation, REVOKED is not reliable either.
    voidedAt: isDamaged ? null : voidedAt,
  });
}

/**
 * Every statement that the registry can have made about a verified proof: each effective verdict,
 * combined with the revocations and compromise in each log prefix from its tree size on. An exported
 * statement is genuine if and only if it is one of these.
 */
export function statementsOf(decided: Decided, history: StatusHistory): VerdictStatement[] {
  const { voidedAt = null } = history;
  const revocations = firstOfEachKind(history.revocations);
  const changes = [...revocations.map(({ leafIndex }) => leafIndex), ...asList(voidedAt)];
  changes.sort((a, b) => a - b);
  return effectiveVerdicts(history.verdicts).flatMap((verdict) => {
    const later = changes.filter((leafIndex) => leafIndex >= verdict.treeSize);
    return [verdict.treeSize, ...later.map((leafIndex) => leafIndex + 1)].map((size) =>
      statement(decided, verdict, {
        revocations: revocations.filter(({ leafIndex }) => leafIndex < size),
        voidedAt: voidedAt !== null && voidedAt < size ? voidedAt : null,
      }),
    );
  });
}

const asList = (leafIndex: number | null): number[] => (leafIndex === null ? [] : [leafIndex]);

interface LogChanges {
  revocations: readonly RevocationInHistory[];
  voidedAt: number | null;
}

function statement(
  { effect, isOutcome }: Decided,
  verdict: VerdictInHistory | undefined,
  { revocations, voidedAt }: LogChanges,
): VerdictStatement {
  const revoked = revocations.map(({ kind }) => kind);
  const statusOf = (kind: ArtifactKind) =>
    verificationStatus({
      kind,
      effect,
      isOutcome,
      verdict: verdict?.outcome ?? 'none',
      isVoided: voidedAt !== null,
      revoked,
      expired: verdict?.expired ?? [],
    });
  const proof = statusOf('proof');
  const lastChange = Math.max(revocations.at(-1)?.leafIndex ?? -1, voidedAt ?? -1);
  return {
    verification_status: proof,
    can_assert_validity: canAssertValidity(proof),
    artifacts: {
      proof,
      passport: statusOf('passport'),
      certificate: statusOf('certificate'),
      trust: statusOf('trust'),
    },
    verified_at: verdict === undefined ? null : formatTime(verdict.verifiedAt),
    log_size: Math.max(verdict?.treeSize ?? 0, lastChange + 1),
  };
}

/** Later revocations of the same kind have no effect. */
function firstOfEachKind(revocations: readonly RevocationInHistory[]): RevocationInHistory[] {
  const kinds = new Set<ArtifactKind>();
  return revocations.filter(({ kind }) => !kinds.has(kind) && kinds.add(kind));
}
