import { documentation } from '../docs/operations.js';
import type { OpenApiDocument } from '../openapi/types.js';
import * as admissions from './admission/admit.js';
import { approvalRequestOperation, approveOperation } from './admission/approve.js';
import { APPROVAL_PAGE } from './admission/approval-page.js';
import { evaluationOperation } from './admission/evaluate.js';
import { createBatchOperation } from './batches/create-batch.js';
import * as batches from './batches/results.js';
import { healthzOperation, readyzOperation } from './http/health.js';
import * as apiKeys from './keys/api-keys.js';
import * as approvers from './keys/approvers.js';
import * as packages from './lifecycle/packages.js';
import * as revocations from './lifecycle/revocations.js';
import * as shareTokens from './lifecycle/share-tokens.js';
import { engineOpenApi, READER_TEXT } from './openapi/document.js';
import { fixedOperation, type Operation } from './operation.js';
import * as overlays from './policy/overlays.js';
import { exportOperation } from './proofs/export-proof.js';
import { inclusionOperation } from './proofs/inclusion.js';
import { listProofsOperation, readProofOperation } from './proofs/read-proof.js';
import { receiptEvidenceOperation } from './proofs/receipt-evidence.js';
import * as runs from './runs/runs.js';
import { replayOperation } from './verification/replay-proof.js';
import { verifyOperation } from './verification/verify-proof.js';

let document: OpenApiDocument | undefined;
/** The OpenAPI document, generated on the first request. */
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
