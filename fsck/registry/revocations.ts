import { readEntry } from '#protocol/entries';
import { parseRevocationReason } from '#protocol/revocation-reason';
import { reasonsFrom, settledRequests } from '#sql/fsck/revocations';
import { statusEntriesOf } from '#sql/log/log';
import type { RegistryContext } from './context.js';

const PAGE_SIZE = 1_000;

/** Checks that each revocation request and each reason document has its log entry. */
export async function checkRevocations(ctx: RegistryContext): Promise<void> {
  const lost = new Set<string>();
  const reportLost = (where: string, kind: string, proofId: string): void => {
    const artifact = `the ${kind} of ${proofId}`;
    if (lost.has(artifact)) return;
    lost.add(artifact);
    ctx.findings.add('revocation_lost', where, `an entry in the log that revokes ${artifact}`);
  };
  for (let after = '0'.repeat(32), more = true; more;) {
    const requests = await settledRequests(ctx.sql, after, PAGE_SIZE);
    const entries = await entriesOf(
      ctx,
      requests.map(({ proofId }) => proofId),
    );
    for (const { requestId, proofId, artifactKind } of requests) {
      const isThere = entries.some(
        (entry) => entry.proof_id === proofId && entry.artifact_kind === artifactKind,
      );
      if (!isThere)
        reportLost(`svc.revocation_request request_id=${requestId}`, artifactKind, proofId);
    }
    after = requests.at(-1)?.requestId ?? after;
    more = requests.length === PAGE_SIZE;
  }
  for (let after = '', more = true; more;) {
    const rows = await reasonsFrom(ctx.sql, after, PAGE_SIZE);
    const reasons = rows.flatMap(({ reasonHash, document }) => {
      const reason = readReason(document);
      return reason === null ? [] : [{ reasonHash, reason }];
    });
    const entries = await entriesOf(
      ctx,
      reasons.map(({ reason }) => reason.proof_id),
    );
    const named = new Set(entries.map((entry) => entry.reason_hash));
    for (const { reasonHash, reason } of reasons) {
      if (named.has(reasonHash)) continue;
      const where = `svc.revocation_reason reason_hash=${reasonHash}`;
      reportLost(where, reason.artifact_kind, reason.proof_id);
    }
    after = rows.at(-1)?.reasonHash ?? after;
    more = rows.length === PAGE_SIZE;
  }
}

async function entriesOf({ sql }: RegistryContext, proofIds: string[]) {
  if (proofIds.length === 0) return [];
  const rows = await statusEntriesOf(sql, [...new Set(proofIds)], Number.MAX_SAFE_INTEGER);
  return rows.flatMap(({ body }) => {
    const entry = readEntry(body);
    return entry?.type === 'status' ? [entry] : [];
  });
}

/** Null for a damaged document, which the check of its log entry reports. */
function readReason(document: Uint8Array) {
  try {
    return parseRevocationReason(document);
  } catch {
    return null;
  }
}
