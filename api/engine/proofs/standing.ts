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
import type { ProofHistory } from '#sql/proofs/history';

type Told = Pick<ProofHistory, 'verdicts' | 'revocations' | 'isDamaged' | 'isErased' | 'voidedAt'>;

/**
 * What the registry says of a proof now: the verdict in force, every revocation in the log, and the
 * compromise that voids it. Where one of the revocations cannot be told any more, nothing is asserted, whatever was found before; nor of
 * what was erased or voided, whether or not the verification system has come to say so.
 */
export function statementOf(decided: Decided, history: Told): VerdictStatement {
  const { isDamaged = false, isErased = false, voidedAt = null, revocations, verdicts } = history;
  const last = verdicts.at(-1);
  const instead: Outcome | null = isDamaged ? 'fail' : isErased ? 'erased' : null;
  const verdict = last === undefined || instead === null ? last : { ...last, outcome: instead };
  return statement(decided, verdict, {
    revocations: firstOfEachKind(revocations),
    // With a revocation lost, nothing is reported as revoked either.
    voidedAt: isDamaged ? null : voidedAt,
  });
}

/**
 * Every statement that the registry could ever have made of a proof once it was verified: each
 * verdict while it was in force, with the revocations and the compromise of each prefix of the log
 * that holds all that were there when the verdict was made. A statement that was exported is genuine
 * if and only if it is one of these.
 */
export function statementsOf(decided: Decided, history: Told): VerdictStatement[] {
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

/** What the log has about a proof besides its entry. */
interface LogChanges {
  /** In log order, the first of each kind. */
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

/** To revoke what is revoked changes nothing, so only the first of a kind counts. */
function firstOfEachKind(revocations: readonly RevocationInHistory[]): RevocationInHistory[] {
  const kinds = new Set<ArtifactKind>();
  return revocations.filter(({ kind }) => !kinds.has(kind) && kinds.add(kind));
}
