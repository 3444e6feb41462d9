import {
  VERIFY_CHECK_NAMES,
  type Verdict,
  type VerdictCause,
  type VerdictKey,
  type VerdictStatement,
  type VerifyCheck,
} from '#protocol/schemas/verdict';
import type { VerificationStatus } from '#protocol/status';
import type { ProofHistory } from '#sql/proofs/history';

export function passOr(name: VerifyCheck['name'], passed: boolean, otherwise: string): VerifyCheck {
  return passed ? { name, result: 'pass' } : { name, result: 'fail', detail: otherwise };
}

/** All checks by name, in their one order: what was not made could not be, and says why. */
export function completed(made: readonly VerifyCheck[], whyNot: string): VerifyCheck[] {
  return VERIFY_CHECK_NAMES.map(
    (name) =>
      made.find((check) => check.name === name) ?? {
        name,
        result: 'not_applicable',
        detail: whyNot,
      },
  );
}

/** What the verification system and the log say of the registry's own proof. */
export function standingChecks({
  isDamaged = false,
  revocations,
  verdicts,
  voidedAt = null,
}: ProofHistory): VerifyCheck[] {
  const unseen = 'the verification system has not looked at it yet';
  const verdict = verdicts.at(-1);
  const revoked = revocations.some(({ kind }) => kind === 'proof');
  return [
    verdict === undefined
      ? { name: 'verdict', result: 'not_applicable', detail: unseen }
      : isDamaged
        ? { name: 'verdict', result: 'fail', detail: 'a revocation is not the one in the log' }
        : verdict.outcome === 'erased'
          ? {
              name: 'verdict',
              result: 'fail',
              detail: 'the payload was erased: nothing is asserted',
            }
          : verdict.outcome === 'pass' && voidedAt !== null
            ? { name: 'verdict', result: 'fail', detail: 'the log voids what its key signed' }
            : passOr('verdict', verdict.outcome === 'pass', failedIn(verdict.failedChecks)),
    passOr('not_revoked', !revoked, 'the log has a revocation of the proof'),
    verdict === undefined
      ? { name: 'not_expired', result: 'not_applicable', detail: unseen }
      : passOr('not_expired', !verdict.expired.includes('proof'), 'its validity is over'),
  ];
}

function failedIn(checks: readonly string[]): string {
  return `the verification system found it wrong${checks.length > 0 ? `: ${checks.join(', ')}` : ''}`;
}

/** The first thing that is wrong, from what an attacker would do to what happens to any proof. */
export function causeOf(
  checks: readonly VerifyCheck[],
  key: { state: VerdictKey['state']; smallOrder: boolean },
  isErased: boolean,
): VerdictCause | null {
  const result = new Map(checks.map((check) => [check.name, check.result]));
  const failed = (name: VerifyCheck['name']): boolean => result.get(name) === 'fail';
  if (failed('registered')) return 'not_in_registry';
  if (key.smallOrder) return 'key_small_order';
  if (key.state !== 'active') return `key_${key.state}`;
  const otherSignature = failed('submitted_envelope') && !failed('submitted_aep');
  const submittedAsLogged = ![...result].some(
    ([name, found]) => name.startsWith('submitted_') && found === 'fail',
  );
  if (failed('signature') && (otherSignature || submittedAsLogged)) return 'bad_signature';
  if (!submittedAsLogged) return 'altered';
  // Of what was erased no check failed; whoever kept it can still hold it against the log.
  if (isErased) return failed('not_revoked') ? 'revoked' : 'erased';
  if (result.get('verdict') === 'not_applicable') return 'not_verified_yet';
  const standing = new Set<string>(['not_revoked', 'not_expired']);
  if (checks.some(({ name }) => failed(name) && !standing.has(name))) return 'failed_verification';
  if (failed('not_revoked')) return 'revoked';
  if (failed('not_expired')) return 'expired';
  return null;
}

const PUBLIC_STATUS: Partial<Record<VerdictCause, VerificationStatus>> = {
  not_in_registry: 'NOT_FOUND',
  revoked: 'REVOKED',
  expired: 'EXPIRED',
};

/** The public vocabulary where it has a word, and INVALID, which only the engine says, for the rest. */
export function statusOf(
  cause: VerdictCause | null,
  statement: VerdictStatement | null,
): Verdict['status'] {
  if (cause !== null) return PUBLIC_STATUS[cause] ?? 'INVALID';
  // Never more than the registry itself says now.
  return statement?.verification_status ?? 'INVALID';
}
