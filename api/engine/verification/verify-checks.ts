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

/** All checks in their documented order. Missing ones are not_applicable, with the reason. */
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

/** Checks of the verdict, revocations and expiry of the registered proof. */
export function statusChecks({
  isDamaged = false,
  revocations,
  verdicts,
  voidedAt = null,
}: ProofHistory): VerifyCheck[] {
  const unverified = 'the verification system has not verified the proof yet';
  const verdict = verdicts.at(-1);
  const revoked = revocations.some(({ kind }) => kind === 'proof');
  return [
    verdict === undefined
      ? { name: 'verdict', result: 'not_applicable', detail: unverified }
      : isDamaged
        ? { name: 'verdict', result: 'fail', detail: 'a stored revocation differs from the log' }
        : verdict.outcome === 'erased'
          ? {
              name: 'verdict',
              result: 'fail',
              detail: 'the payload was erased: nothing is asserted',
            }
          : verdict.outcome === 'pass' && voidedAt !== null
            ? {
                name: 'verdict',
                result: 'fail',
                detail: 'the log records a compromise of the signing key',
              }
            : passOr('verdict', verdict.outcome === 'pass', failedIn(verdict.failedChecks)),
    passOr('not_revoked', !revoked, 'the log has a revocation of the proof'),
    verdict === undefined
      ? { name: 'not_expired', result: 'not_applicable', detail: unverified }
      : passOr('not_expired', !verdict.expired.includes('proof'), 'the proof has expired'),
  ];
}

function failedIn(checks: readonly string[]): string {
  return `the verification system found a fault${checks.length > 0 ? `: ${checks.join(', ')}` : ''}`;
}

/** The most severe fault: forgery before damage, damage before revocation and expiry. */
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
  // No check fails for an erased proof: a kept copy still matches the log.
  if (isErased) return failed('not_revoked') ? 'revoked' : 'erased';
  if (result.get('verdict') === 'not_applicable') return 'not_verified_yet';
  const statusCheckNames = new Set<string>(['not_revoked', 'not_expired']);
  if (checks.some(({ name }) => failed(name) && !statusCheckNames.has(name)))
    return 'failed_verification';
  if (failed('not_revoked')) return 'revoked';
  if (failed('not_expired')) return 'expired';
  return null;
}

const PUBLIC_STATUS: Partial<Record<VerdictCause, VerificationStatus>> = {
  not_in_registry: 'NOT_FOUND',
  revoked: 'REVOKED',
  expired: 'EXPIRED',
};

/** A public status where one applies; otherwise INVALID, which only the engine uses. */
export function statusOf(
  cause: VerdictCause | null,
  statement: VerdictStatement | null,
): Verdict['status'] {
  if (cause !== null) return PUBLIC_STATUS[cause] ?? 'INVALID';
  // Never more positive than the registry's current statement.
  return statement?.verification_status ?? 'INVALID';
}
