import { everInForce, type RevocationInHistory, type VerdictInHistory } from '#protocol/history';
import type { VerdictStatement } from '#protocol/schemas/verdict';
import {
  canAssertValidity,
  verificationStatus,
  type ArtifactKind,
  type Decided,
  type Outcome,
} from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { ProofHistory } from '#sql/proof-history';

type Told = Pick<ProofHistory, 'verdicts' | 'revocations' | 'isDamaged' | 'isErased'>;

/**
 * What the registry says of a proof now: the verdict in force, and every revocation in the log.
 * Where one of those cannot be told any more, nothing is asserted, whatever was found before; nor of
 * what was erased, whether or not the verification system has come to say so.
 */
export function statementOf(decided: Decided, history: Told): VerdictStatement {
  const { isDamaged = false, isErased = false, revocations, verdicts } = history;
  const last = verdicts.at(-1);
  const instead: Outcome | null = isDamaged ? 'fail' : isErased ? 'erased' : null;
  const verdict = last === undefined || instead === null ? last : { ...last, outcome: instead };
  return statement(decided, verdict, firstOfEachKind(revocations));
}

/**
 * Every statement that the registry could ever have made of a proof once it was verified: each
 * verdict while it was in force, with each prefix of the revocations that holds all that were in
 * the log when the verdict was made. A statement that was exported is genuine if and only if it is
 * one of these.
 */
export function statementsOf(decided: Decided, history: Told): VerdictStatement[] {
  const revocations = firstOfEachKind(history.revocations);
  return everInForce(history.verdicts).flatMap((verdict) => {
    const known = revocations.filter(({ leafIndex }) => leafIndex < verdict.treeSize).length;
    const later = revocations.length - known;
    return Array.from({ length: later + 1 }, (_, more) =>
      statement(decided, verdict, revocations.slice(0, known + more)),
    );
  });
}

function statement(
  { effect, isOutcome }: Decided,
  verdict: VerdictInHistory | undefined,
  revocations: RevocationInHistory[],
): VerdictStatement {
  const revoked = revocations.map(({ kind }) => kind);
  const statusOf = (kind: ArtifactKind) =>
    verificationStatus({
      kind,
      effect,
      isOutcome,
      verdict: verdict?.outcome ?? 'none',
      revoked,
      expired: verdict?.expired ?? [],
    });
  const proof = statusOf('proof');
  const lastRevocation = revocations.at(-1)?.leafIndex ?? -1;
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
    log_size: Math.max(verdict?.treeSize ?? 0, lastRevocation + 1),
  };
}

/** To revoke what is revoked changes nothing, so only the first of a kind counts. */
function firstOfEachKind(revocations: readonly RevocationInHistory[]): RevocationInHistory[] {
  const kinds = new Set<ArtifactKind>();
  return revocations.filter(({ kind }) => !kinds.has(kind) && kinds.add(kind));
}
