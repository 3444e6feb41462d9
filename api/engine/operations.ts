import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { healthCheck, type Readiness } from '#runtime/ops/health';
import { requirePrimary } from '#sql/db/transaction';
import { documentation } from '../docs/operations.js';
import type { OpenApiDocument } from '../openapi/types.js';
import * as admissions from './admission/admit.js';
import { approvalRequestOperation, approveOperation } from './admission/approve.js';
import { APPROVAL_PAGE } from './admission/approval-page.js';
import { evaluationOperation } from './admission/evaluate.js';
import { createBatchOperation } from './batches/create-batch.js';
import * as batches from './batches/results.js';
import type { EngineContext } from './context.js';
import { sendBytes } from './http/respond.js';
import * as apiKeys from './keys/api-keys.js';
import * as approvers from './keys/approvers.js';
import * as packages from './lifecycle/packages.js';
import * as revocations from './lifecycle/revocations.js';
import * as shareTokens from './lifecycle/share-tokens.js';
import { engineOpenApi, READER_TEXT } from './openapi/document.js';
import { fixedOperation, json, publicSpec, type Operation } from './operation.js';
import * as overlays from './policy/overlays.js';
import { exportOperation } from './proofs/export-proof.js';
import { inclusionOperation } from './proofs/inclusion.js';
import { listProofsOperation, readProofOperation } from './proofs/read-proof.js';
import { receiptEvidenceOperation } from './proofs/receipt-evidence.js';
import * as runs from './runs/runs.js';
import { replayOperation } from './verification/replay-proof.js';
import { verifyOperation } from './verification/verify-proof.js';

const healthzOperation: Operation = {
  spec: publicSpec({
    id: 'healthz',
    path: '/healthz',
    summary: 'Check liveness',
    responses: {
      200: json('The process is running.', z.strictObject({ status: z.literal('ok') })),
    },
  }),
  handler: () => (_req, res) => sendBytes(res, 200, 'application/json', utf8('{"status":"ok"}')),
};

const conditionSchema = z.enum(['up', 'down']);
const readinessSchema = z.strictObject({
  status: z.enum(['ready', 'degraded', 'unavailable', 'stopping']),
  dependencies: z.strictObject({ database: conditionSchema, queue: conditionSchema }),
});

const readyzOperation: Operation = {
  spec: publicSpec({
    id: 'readyz',
    path: '/readyz',
    summary: 'Check readiness',
    responses: {
      200: json('Ready; `degraded` while the queue is down.', readinessSchema),
      503: json('The database is down, or this engine is shutting down.', readinessSchema, {
        'Retry-After': 'Seconds to wait before trying again.',
      }),
    },
  }),
  handler: ({ ctx }) => {
    const find = engineReadiness(ctx);
    return async (_req, res) => {
      const { ready, details } = await find();
      if (!ready) res.setHeader('Retry-After', '1');
      sendBytes(res, ready ? 200 : 503, 'application/json', utf8(JSON.stringify(details)));
    };
  },
};

/**
 * Without the database the engine can serve nothing. Without the queue it still accepts admissions
 * and reads proofs, so it reports `degraded` but ready: all engines share the queue.
 */
export function engineReadiness({
  sql,
  queue,
  stopping,
}: Pick<EngineContext, 'sql' | 'queue' | 'stopping'>): () => Promise<Readiness> {
  const database = healthCheck(() => requirePrimary(sql));
  const reachesQueue = healthCheck(() => queue.ping());
  return async () => {
    const [ofDatabase, ofQueue] = await Promise.all([database(), reachesQueue()]);
    const isStopping = stopping?.aborted === true;
    const ready = ofDatabase === 'up' && !isStopping;
    const whenReady = ofQueue === 'up' ? 'ready' : 'degraded';
    const status = isStopping ? 'stopping' : ready ? whenReady : 'unavailable';
    return { ready, details: { status, dependencies: { database: ofDatabase, queue: ofQueue } } };
  };
}

let document: OpenApiDocument | undefined;
/** Generated on the first request. */
const described = (): OpenApiDocument =>
  (document ??= engineOpenApi(OPERATIONS.map(({ spec }) => spec)));

const documentationOperations = documentation('Engine API', READER_TEXT).map(
  ({ spec, type, response, textOf, policy }) =>
    fixedOperation(spec, type, response, () => textOf(described()), policy),
);

/** The first matching path wins, so `/v1/proofs/verify` comes before the path of a proof. */
export const OPERATIONS: readonly Operation[] = [
  admissions.executeOperation,
  admissions.agentAdmissionOperation,
  admissions.readAdmissionOperation,
  evaluationOperation,
  approveOperation,
  approvalRequestOperation,
  createBatchOperation,
  batches.listBatchesOperation,
  batches.readBatchOperation,
  batches.batchResultsOperation,
  listProofsOperation,
  verifyOperation,
  replayOperation,
  readProofOperation,
  inclusionOperation,
  receiptEvidenceOperation,
  exportOperation,
  runs.readRunOperation,
  runs.runPackageOperation,
  revocations.revokeArtifactOperation,
  revocations.readRevocationOperation,
  shareTokens.createShareTokenOperation,
  shareTokens.listShareTokensOperation,
  shareTokens.revokeShareTokenOperation,
  packages.createPackageOperation,
  packages.listPackagesOperation,
  packages.readPackageOperation,
  overlays.storeOverlayOperation,
  overlays.listOverlaysOperation,
  overlays.testOverlayOperation,
  overlays.activateOverlayOperation,
  overlays.deactivateOverlayOperation,
  apiKeys.createApiKeyOperation,
  apiKeys.listApiKeysOperation,
  apiKeys.revokeApiKeyOperation,
  approvers.registerApproverOperation,
  approvers.listApproversOperation,
  approvers.retireApproverOperation,
  healthzOperation,
  readyzOperation,
  ...APPROVAL_PAGE,
  ...documentationOperations,
];
