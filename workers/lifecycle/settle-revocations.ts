import { parseEntry, statusEntryBytes } from '#protocol/entries';
import { parseRevocationReason } from '#protocol/revocation-reason';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Logger } from '#runtime/process/log';
import { isUnavailable } from '#sql/db/errors';
import { type Pool, type Transaction, transaction } from '#sql/db/transaction';
import { databaseTime } from '#sql/lifecycle/entries';
import {
  type ClaimedRevocation,
  claimRevocations,
  insertReasons,
  refuseRevocations,
  type RevocationRefusal,
} from '#sql/lifecycle/revocations';
import { appendLocked, lockHead, statusEntriesOf } from '#sql/log/log';

/**
 * Appends the status entries of revocations that were asked for. Ids that are unknown, not asked
 * for or settled already are passed over, so any message may come any number of times.
 *
 * Lane and allowlist are not asked: they close the way in, and revoking must stay possible when
 * it is closed.
 *
 * @throws when something could not be settled for a reason that may pass; the sweeper comes back
 */
export async function settleRevocations(
  context: LifecycleContext,
  requestIds: string[],
): Promise<void> {
  try {
    await transaction(context.sql, (tx) => settleIn(tx, context, requestIds));
    // COMMIT POINT. From here on the artifacts are revoked, for ever. A crash before it leaves the
    // requests pending; one after it leaves nothing to do.
  } catch (error) {
    if (isUnavailable(error) || requestIds.length === 1) throw error;
    context.log.warn({ err: error }, 'a group of revocations failed; going one by one');
    await settleAlone(context, requestIds);
  }
}

/** One bad request never holds up its neighbours. It stays pending, and is said to whoever runs this. */
async function settleAlone(context: LifecycleContext, requestIds: string[]): Promise<void> {
  let failed: unknown;
  for (const requestId of requestIds) {
    try {
      await settleRevocations(context, [requestId]);
    } catch (error) {
      failed = error;
      if (isUnavailable(error)) break;
    }
  }
  if (failed !== undefined) throw failed as Error;
}

async function settleIn(
  tx: Transaction,
  { log }: LifecycleContext,
  requestIds: string[],
): Promise<void> {
  const size = await lockHead(tx);
  const claimed = await claimRevocations(tx, requestIds);
  if (claimed.length === 0) return;
  const revoked = await revokedIn(tx, claimed, size);
  const refusals: { requestId: string; code: RevocationRefusal }[] = [];
  const open: ClaimedRevocation[] = [];
  for (const request of claimed) {
    // Revoked in the meantime, by whoever: nothing is left to say, and the first reason stands.
    if (revoked.has(artifactOf(request))) continue;
    if (!request.keyHolds) {
      refusals.push({ requestId: request.requestId, code: 'api_key_revoked' });
    } else if (!request.artifactHolds || !reasonHolds(request)) {
      log.error(
        { revocation_id: request.requestId },
        'a revocation is not what was asked: set aside',
      );
      refusals.push({ requestId: request.requestId, code: 'processing_failed' });
    } else {
      revoked.add(artifactOf(request));
      open.push(request);
    }
  }
  await refuseRevocations(tx, refusals);
  if (open.length === 0) return;
  await insertReasons(tx, open);
  const at = await databaseTime(tx);
  await appendLocked(
    tx,
    nativeSha256,
    size,
    open.map((request) => ({
      kind: 'status',
      proofId: request.proofId,
      at,
      body: statusEntryBytes({
        proof_id: request.proofId,
        artifact_kind: request.artifactKind,
        reason_hash: request.reasonHash.toString('hex'),
        time: formatTime(at),
      }),
    })),
  );
}

const artifactOf = (artifact: { proofId: string; artifactKind: string }): string =>
  `${artifact.artifactKind} of ${artifact.proofId}`;

/** Under the append lock this is final: nobody else revokes before this transaction is over. */
async function revokedIn(
  tx: Transaction,
  requests: ClaimedRevocation[],
  size: number,
): Promise<Set<string>> {
  const proofIds = [...new Set(requests.map(({ proofId }) => proofId))];
  const revoked = new Set<string>();
  for (const { body } of await statusEntriesOf(tx, proofIds, size)) {
    const entry = parseEntry(body);
    if (entry.type !== 'status') continue;
    revoked.add(artifactOf({ proofId: entry.proof_id, artifactKind: entry.artifact_kind }));
  }
  return revoked;
}

/** The document is the one that was hashed, and speaks of this artifact: the engine is not believed. */
function reasonHolds(request: ClaimedRevocation): boolean {
  if (!request.reasonHash.equals(nativeSha256(request.document))) return false;
  try {
    const reason = parseRevocationReason(request.document);
    return reason.proof_id === request.proofId && reason.artifact_kind === request.artifactKind;
  } catch {
    return false;
  }
}

/** What settling revocations works with: no key, for a status entry is not signed. */
export interface LifecycleContext {
  sql: Pool;
  log: Logger;
}
