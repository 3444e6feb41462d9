import { agentAdmissionOperation } from './operations/agent-admission.js';
import { admissionOperation } from './operations/admission.js';
import { batchResultsOperation } from './operations/batch-results.js';
import { createBatchOperation } from './operations/create-batch.js';
import { createPackageOperation } from './operations/create-package.js';
import { createShareTokenOperation } from './operations/create-share-token.js';
import { docsOperation, docsStyleOperation } from './operations/docs.js';
import { executeOperation } from './operations/execute.js';
import { exportOperation } from './operations/export-proof.js';
import { healthzOperation, readyzOperation } from './operations/health.js';
import { inclusionOperation } from './operations/inclusion.js';
import { openApiOperation } from './operations/openapi.js';
import { listBatchesOperation } from './operations/list-batches.js';
import { listPackagesOperation } from './operations/list-packages.js';
import { listShareTokensOperation } from './operations/list-share-tokens.js';
import { listProofsOperation } from './operations/list-proofs.js';
import type { Operation } from './operation.js';
import { readBatchOperation } from './operations/read-batch.js';
import { readPackageOperation } from './operations/read-package.js';
import { readProofOperation } from './operations/read-proof.js';
import { readRevocationOperation } from './operations/read-revocation.js';
import { replayOperation } from './operations/replay-proof.js';
import { verifyOperation } from './operations/verify-proof.js';
import { revokeArtifactOperation } from './operations/revoke-artifact.js';
import { revokeShareTokenOperation } from './operations/revoke-share-token.js';

/** All operations of the engine API: routes and OpenAPI document are generated from this list. */
export const OPERATIONS: readonly Operation[] = [
  executeOperation,
  agentAdmissionOperation,
  admissionOperation,
  createBatchOperation,
  listBatchesOperation,
  readBatchOperation,
  batchResultsOperation,
  listProofsOperation,
  verifyOperation,
  replayOperation,
  readProofOperation,
  inclusionOperation,
  exportOperation,
  revokeArtifactOperation,
  readRevocationOperation,
  createShareTokenOperation,
  listShareTokensOperation,
  revokeShareTokenOperation,
  createPackageOperation,
  listPackagesOperation,
  readPackageOperation,
  healthzOperation,
  readyzOperation,
  openApiOperation,
  docsOperation,
  docsStyleOperation,
];
