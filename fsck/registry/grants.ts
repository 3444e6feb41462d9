import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import { asOfOneMoment } from '#sql/fsck/chunk';
import {
  grantNumbers,
  packagesFrom,
  tokensFrom,
  type CheckedPackage,
  type CheckedToken,
} from '#sql/fsck/grants';
import { expiryScanDoneAt } from '#sql/log/verdicts';
import type { RegistryContext } from './context.js';

/** Large, because each query scans all change numbers. */
const PAGE_SIZE = 10_000;

/** The packages of the registry in order of their ids, in pages. */
export async function* allPackages({
  sql,
}: Pick<RegistryContext, 'sql'>): AsyncGenerator<CheckedPackage[]> {
  for (let after = `pkg_${'0'.repeat(32)}`, more = true; more;) {
    const rows = await packagesFrom(sql, after, PAGE_SIZE);
    yield rows;
    after = rows.at(-1)?.packageId ?? after;
    more = rows.length === PAGE_SIZE;
  }
}

/** The share tokens of the registry in order of their hashes, in pages. */
export async function* allTokens({
  sql,
}: Pick<RegistryContext, 'sql'>): AsyncGenerator<CheckedToken[]> {
  for (let after = '', more = true; more;) {
    const rows = await asOfOneMoment(sql, (tx) => tokensFrom(tx, after, PAGE_SIZE));
    yield rows;
    after = rows.at(-1)?.tokenHash ?? after;
    more = rows.length === PAGE_SIZE;
  }
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
  const { count, last, head, packagesWithout } = await asOfOneMoment(sql, grantNumbers);
  if (count !== last || last !== head) {
    const found = `${String(count)} rows up to ${String(last)}`;
    findings.add(
      'grant_changes_differ',
      'svc.grant_change',
      `changes 1 to ${String(head)}, found ${found}`,
    );
  }
  for (const packageId of packagesWithout) {
    findings.add('grant_changes_differ', `svc.grant_change package_id=${packageId}`, 'a change');
  }
}

export function membersHashOf(proofIds: readonly string[]): string {
  return hashHex(nativeSha256, canonicalBytes([...proofIds]));
}

function checkToken(
  { findings }: RegistryContext,
  token: CheckedToken,
  verifierCheckedAt: number,
): void {
  const { tokenHash, expiresAt, expiredAt, dueAt } = token;
  const where = `svc.share_token token_hash=${tokenHash}`;
  if (!token.hasTarget) {
    findings.add('share_target_missing', where, "what it shows, of the token's own tenant");
  }
  const end = expiresAt?.getTime() ?? Infinity;
  if (expiredAt !== null && expiredAt.getTime() < end) {
    findings.add('share_end_differs', where, 'svc.share_expiry no sooner than expires_at');
  } else if (expiredAt === null && dueAt?.getTime() !== expiresAt?.getTime()) {
    findings.add('share_end_differs', where, 'svc.share_due at expires_at');
  } else if (expiredAt === null && end <= verifierCheckedAt) {
    findings.add('share_end_differs', where, 'svc.share_expiry: a later expiry scan has finished');
  }
  const expected = 1 + (token.isRevoked ? 1 : 0) + (expiredAt === null ? 0 : 1);
  if (token.changes !== expected) {
    const said = `${String(expected)} changes, found ${String(token.changes)}`;
    findings.add('grant_changes_differ', `svc.grant_change token_hash=${tokenHash}`, said);
  }
}
