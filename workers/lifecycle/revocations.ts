import { toHex } from '#protocol/bytes';
import { isReasonOf, parseEntry } from '#protocol/entries';
import { coalesce } from '#runtime/concurrency';
import { nativeSha256 } from '#runtime/crypto/node';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { logRarely } from '#runtime/process/log';
import { announceOutcomes } from '#sql/admissions/outcomes';
import { isLockTimeout, isUnavailable } from '#sql/db/errors';
import { type Transaction, transaction, databaseTime } from '#sql/db/transaction';
import {
  type ClaimedRevocation,
  claimRevocations,
  insertReasons,
  refuseRevocations,
  revocationEntry,
  type RevocationRejection,
} from '#sql/lifecycle/revocations';
import { appendEntries, lockHead } from '#sql/log/append';
import { statusEntriesOf } from '#sql/log/log';
import type { AdmitContext } from '../admit/context.js';

/** Dependencies of the revocation worker, which needs no key, because status entries are unsigned. */
type LifecycleContext = Pick<AdmitContext, 'sql' | 'log'>;

/** Whether an error affects every request. Single retries would only wait for the database or the lock again. */
const affectsAll = (error: unknown): boolean => isUnavailable(error) || isLockTimeout(error);

/** Maximum number of revocations per transaction: admissions wait while it holds the append lock. */
const GROUP_SIZE = 256;

/**
 * Commits the revocations of concurrent jobs in one transaction at a time: with a transaction for each job, one
 * tenant's revocations would take all connections of the worker, and the append lock many times before an admission
 * gets it. A request that fails stays pending, and the others are committed; the returned promise rejects, and the
 * requeue retries the failed requests.
 */
export function groupRevocations(context: LifecycleContext) {
  const { log } = context;
  const commit = coalesce<string, undefined>({
    maxWaitMs: 1,
    maxItems: GROUP_SIZE,
    maxRunning: 1,
    isRetryAlone: (error) => !affectsAll(error),
    run: async (requestIds) => {
      await commitRevocations(context, requestIds).catch((error: unknown) => {
        if (!affectsAll(error) && requestIds.length > 1) {
          const message = 'commit of revocations failed; they are retried one by one';
          log.warn({ err: error }, message);
        }
        throw error;
      });
      return requestIds.map(() => undefined);
    },
  });
  return async (requestIds: readonly string[], requests = NO_REQUEST_IDS): Promise<void> => {
    const [first = ''] = requestIds;
    const fields = {
      revocations: requestIds.length,
      revocation_id: first,
      request_id: requests.of(first),
    };
    const commits = requestIds.map(commit);
    await Promise.allSettled(commits);
    try {
      await Promise.all(commits);
      log.debug(fields, 'revocations committed');
    } catch (error) {
      const message = 'revocations cannot be committed; they are kept and retried';
      logRarely(log, 'error', { err: error, ...fields }, message);
      throw error;
    }
  };
}

/**
 * Appends the status entries of requested revocations. Skips ids that are unknown or committed already, so the queue
 * may deliver a message repeatedly.
 *
 * Paused admissions and the tenant allowlist do not apply: revocation must stay possible.
 */
export async function commitRevocations(
  { log, sql }: LifecycleContext,
  requestIds: string[],
): Promise<void> {
  await transaction(sql, async (tx) => {
    const size = await lockHead(tx);
    const claimed = await claimRevocations(tx, requestIds);
    if (claimed.length === 0) return;
    await announceOutcomes(
      tx,
      claimed.map(({ requestId }) => requestId),
    );
    const revoked = await revokedIn(tx, claimed, size);
    const refusals: { requestId: string; code: RevocationRejection }[] = [];
    const open: ClaimedRevocation[] = [];
    for (const request of claimed) {
      // Already revoked by an earlier request: the first reason is final.
      if (revoked.has(artifactOf(request))) continue;
      if (!request.keyHolds) {
        refusals.push({ requestId: request.requestId, code: 'api_key_revoked' });
      } else if (!request.artifactHolds || !reasonHolds(request)) {
        log.error(
          { revocation_id: request.requestId },
          'the stored revocation differs from the request: it is rejected',
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
    await appendEntries(
      tx,
      size,
      open.map((request) => revocationEntry(request, at)),
    );
  });
  // COMMIT POINT: the artifacts are revoked permanently. A crash before this point leaves the requests
  // pending; a later crash needs no recovery.
}

const artifactOf = (artifact: { proofId: string; artifactKind: string }): string =>
  `${artifact.artifactKind} of ${artifact.proofId}`;

/**
 * The artifacts that are already revoked. The append lock excludes further revocations until the
 * transaction ends.
 */
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

/** Whether the reason document matches hash and artifact; the worker does not rely on the engine. */
const reasonHolds = ({ artifactKind, document, proofId, reasonHash }: ClaimedRevocation): boolean =>
  isReasonOf(nativeSha256, document, {
    artifact_kind: artifactKind,
    proof_id: proofId,
    reason_hash: toHex(reasonHash),
  });
