import { readEntry, readReason } from '#protocol/entries';
import { documentHash } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  grantNumbers,
  packagesFrom,
  tokensFrom,
  type CheckedPackage,
  type CheckedToken,
  reasonsFrom,
  settledRequests,
} from '#sql/fsck/lifecycle';
import { readSnapshot } from '#sql/db/transaction';
import { statusEntriesOf } from '#sql/log/log';
import { expiryScanDoneAt } from '#sql/log/verdicts';
import { FIRST_ID, pages, type RegistryContext } from './context.js';

/** Packages or tokens per query. Pages are large, because each query scans all change numbers. */
const PAGE_SIZE = 10_000;

export function allPackages({ sql }: RegistryContext): AsyncGenerator<CheckedPackage[]> {
  return pages('packageId', PAGE_SIZE, `pkg_${FIRST_ID}`, (...page) => packagesFrom(sql, ...page));
}

export function allTokens({ sql }: RegistryContext): AsyncGenerator<CheckedToken[]> {
  return pages('tokenHash', PAGE_SIZE, '', (...page) =>
    readSnapshot(sql, (tx) => tokensFrom(tx, ...page)),
  );
}

/** Checks the members of packages, the targets and expiries of tokens, and all change numbers. */
export async function checkShares(ctx: RegistryContext): Promise<void> {
  const { sql, findings } = ctx;
  for await (const packages of allPackages(ctx)) {
    for (const { packageId, membersHash, proofIds, areFit } of packages) {
      const where = `svc.trust_package package_id=${packageId}`;
      if (documentHash(nativeSha256, proofIds) !== membersHash) {
        findings.add('package_differs', where, `members whose hash is ${membersHash}`);
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
    add('share_end_differs', where, 'a row of svc.share_expiry with a time not before expires_at');
  } else if (expiredAt === null && dueAt?.getTime() !== expiresAt?.getTime()) {
    add('share_end_differs', where, 'a row of svc.share_due with the time expires_at');
  } else if (expiredAt === null && end <= verifierCheckedAt) {
    const scan = 'an expiry scan after expires_at has finished';
    add('share_end_differs', where, `a row of svc.share_expiry, because ${scan}`);
  }
  const expected = 1 + (token.isRevoked ? 1 : 0) + (expiredAt === null ? 0 : 1);
  if (token.changes !== expected) {
    const changes = `${expected} changes, found ${token.changes}`;
    add('grant_changes_differ', `svc.grant_change token_hash=${tokenHash}`, changes);
  }
}

const REVOCATIONS_PER_PAGE = 1_000;

/** Checks that each revocation request and each reason document has its log entry. */
export async function checkRevocations(ctx: RegistryContext): Promise<void> {
  const { sql, findings } = ctx;
  const lost = new Set<string>();
  const reportLost = (where: string, kind: string, proofId: string): void => {
    const artifact = `the ${kind} of ${proofId}`;
    if (lost.has(artifact)) return;
    lost.add(artifact);
    findings.add('revocation_lost', where, `an entry in the log that revokes ${artifact}`);
  };
  const requested = pages('requestId', REVOCATIONS_PER_PAGE, FIRST_ID, (...page) =>
    settledRequests(sql, ...page),
  );
  for await (const requests of requested) {
    const entries = await entriesAbout(ctx, requests);
    const revoked = new Set(entries.map((one) => `${one.artifact_kind} ${one.proof_id}`));
    for (const { requestId, proofId, artifactKind } of requests) {
      const where = `svc.revocation_request request_id=${requestId}`;
      if (!revoked.has(`${artifactKind} ${proofId}`)) reportLost(where, artifactKind, proofId);
    }
  }
  const documents = pages('reasonHash', REVOCATIONS_PER_PAGE, '', (...page) =>
    reasonsFrom(sql, ...page),
  );
  for await (const rows of documents) {
    // The check of the log entry reports a damaged document.
    const reasons = rows.flatMap(({ reasonHash, document }) => {
      const reason = readReason(document);
      return reason === null ? [] : [{ reasonHash, proofId: reason.proof_id, reason }];
    });
    const entries = await entriesAbout(ctx, reasons);
    const named = new Set(entries.map((entry) => entry.reason_hash));
    for (const { reasonHash, proofId, reason } of reasons) {
      const where = `svc.revocation_reason reason_hash=${reasonHash}`;
      if (!named.has(reasonHash)) reportLost(where, reason.artifact_kind, proofId);
    }
  }
}

async function entriesAbout({ sql }: RegistryContext, about: readonly { proofId: string }[]) {
  if (about.length === 0) return [];
  const proofIds = [...new Set(about.map(({ proofId }) => proofId))];
  const rows = await statusEntriesOf(sql, proofIds, Number.MAX_SAFE_INTEGER);
  return rows.flatMap(({ body }) => {
    const entry = readEntry(body);
    return entry?.type === 'status' ? [entry] : [];
  });
}
