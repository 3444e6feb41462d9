import { canonicalBytes } from '#protocol/json';
import { hashHex } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import { asOfOneMoment } from '#sql/fsck/log';
import {
  grantNumbers,
  packagesFrom,
  tokensFrom,
  type CheckedPackage,
  type CheckedToken,
} from '#sql/fsck/lifecycle';
import { expiryScanDoneAt } from '#sql/log/verdicts';
import { FIRST_ID, pages, type RegistryContext } from './context.js';

/** Large, because each query scans all change numbers. */
const PAGE_SIZE = 10_000;

/** The packages of the registry in order of their ids, in pages. */
export function allPackages({ sql }: RegistryContext): AsyncGenerator<CheckedPackage[]> {
  return pages('packageId', PAGE_SIZE, `pkg_${FIRST_ID}`, (...page) => packagesFrom(sql, ...page));
}

/** The share tokens of the registry in order of their hashes, in pages. */
export function allTokens({ sql }: RegistryContext): AsyncGenerator<CheckedToken[]> {
  return pages('tokenHash', PAGE_SIZE, '', (...page) =>
    asOfOneMoment(sql, (tx) => tokensFrom(tx, ...page)),
  );
}

/** Checks members of packages, targets and expiries of tokens, and their change numbers. */
export async function checkGrants(ctx: RegistryContext): Promise<void> {
  const { sql, findings } = ctx;
  for await (const packages of allPackages(ctx)) {
    for (const { packageId, membersHash, proofIds, areFit } of packages) {
      const where = `svc.trust_package package_id=${packageId}`;
      if (membersHashOf(proofIds) !== membersHash) {
        findings.add('package_differs', where, `members of hash ${membersHash}`);
      } else if (!areFit) {
        findings.add('package_differs', where, "admissions of the package's tenant only");
      }
    }
  }
  const verifierCheckedAt = (await expiryScanDoneAt(sql)) ?? -Infinity;
  for await (const tokens of allTokens(ctx)) {
    for (const token of tokens) checkToken(ctx, token, verifierCheckedAt);
  }
  const { count, last, head } = await grantNumbers(sql);
  if (count !== last || last !== head) {
    const expected = `changes 1 to ${head}, found ${count} rows up to ${last}`;
    findings.add('grant_changes_differ', 'svc.grant_change', expected);
  }
}

export function membersHashOf(proofIds: readonly string[]): string {
  return hashHex(nativeSha256, canonicalBytes([...proofIds]));
}

function checkToken(
  { findings: { add } }: RegistryContext,
  token: CheckedToken,
  verifierCheckedAt: number,
): void {
  const { tokenHash, expiresAt, expiredAt, dueAt } = token;
  const where = `svc.share_token token_hash=${tokenHash}`;
  if (!token.hasTarget) add('share_target_missing', where, "a target of the token's own tenant");
  const end = expiresAt?.getTime() ?? Infinity;
  if (expiredAt !== null && expiredAt.getTime() < end) {
    add('share_end_differs', where, 'svc.share_expiry no sooner than expires_at');
  } else if (expiredAt === null && dueAt?.getTime() !== expiresAt?.getTime()) {
    add('share_end_differs', where, 'svc.share_due at expires_at');
  } else if (expiredAt === null && end <= verifierCheckedAt) {
    add('share_end_differs', where, 'svc.share_expiry: a later expiry scan has finished');
  }
  const expected = 1 + (token.isRevoked ? 1 : 0) + (expiredAt === null ? 0 : 1);
  if (token.changes !== expected) {
    const changes = `${expected} changes, found ${token.changes}`;
    add('grant_changes_differ', `svc.grant_change token_hash=${tokenHash}`, changes);
  }
}
