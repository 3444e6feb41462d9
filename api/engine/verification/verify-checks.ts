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
  return VERIFY_CHECK_NAMES.map((name) => {
    const missing = { name, result: 'not_applicable', detail: whyNot } as const;
    return made.find((check) => check.name === name) ?? missing;
  });
}

/** Checks of the verdict, revocations and expiry of the registered proof. */
export function statusChecks(history: ProofHistory): VerifyCheck[] {
  const { revocations, verdicts } = history;
  const verdict = verdicts.at(-1);
  const revoked = revocations.some(({ kind }) => kind === 'proof');
  const notRevoked = passOr('not_revoked', !revoked, 'the log has a revocation of the proof');
  if (verdict === undefined) {
    const unverified = {
      result: 'not_applicable',
      detail: 'the verification system has not verified the proof yet',
    } as const;
    return [{ name: 'verdict', ...unverified }, notRevoked, { name: 'not_expired', ...unverified }];
  }
  const fault = verdictFault(history, verdict);
  return [
    passOr('verdict', fault === null, fault ?? ''),
    notRevoked,
    passOr('not_expired', !verdict.expired.includes('proof'), 'the proof has expired'),
  ];
}

/** Why the verdict asserts nothing, or null. */
function verdictFault(
  { isDamaged = false, voidedAt = null }: ProofHistory,
  { failedChecks, outcome }: ProofHistory['verdicts'][number],
): string | null {
  if (isDamaged) return 'a stored revocation differs from the log';
  if (outcome === 'erased') return 'the payload was erased: nothing is asserted';
  if (outcome !== 'pass') {
    const names = failedChecks.length > 0 ? `: ${failedChecks.join(', ')}` : '';
    return `the verification system found a fault${names}`;
  }
  return voidedAt === null ? null : 'the log records a compromise of the signing key';
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
