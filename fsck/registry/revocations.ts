import { readEntry } from '#protocol/entries';
import { reasonsFrom, settledRequests } from '#sql/fsck/lifecycle';
import { statusEntriesOf } from '#sql/log/log';
import { readReason } from './check-leaf.js';
import { FIRST_ID, pages, type RegistryContext } from './context.js';

const PAGE_SIZE = 1_000;

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
  const requested = pages('requestId', PAGE_SIZE, FIRST_ID, (...page) =>
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
  const documents = pages('reasonHash', PAGE_SIZE, '', (...page) => reasonsFrom(sql, ...page));
  for await (const rows of documents) {
    // The check of its log entry reports a damaged document.
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
