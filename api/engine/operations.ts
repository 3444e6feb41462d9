import {
  executeOperation,
  agentAdmissionOperation,
  readAdmissionOperation,
} from './admission/operations.js';
import { createBatchOperation } from './batches/create-batch.js';
import {
  listBatchesOperation,
  readBatchOperation,
  batchResultsOperation,
} from './batches/results.js';
import {
  createPackageOperation,
  listPackagesOperation,
  readPackageOperation,
} from './lifecycle/packages.js';
import { revokeArtifactOperation, readRevocationOperation } from './lifecycle/revocations.js';
import {
  createShareTokenOperation,
  listShareTokensOperation,
  revokeShareTokenOperation,
} from './lifecycle/share-tokens.js';
import { exportOperation } from './proofs/export-proof.js';
import { inclusionOperation } from './proofs/inclusion.js';
import { listProofsOperation } from './proofs/list-proofs.js';
import { readProofOperation } from './proofs/read-proof.js';
import {
  healthzOperation,
  readyzOperation,
  openApiOperation,
  docsOperation,
  docsStyleOperation,
} from './service.js';
import { replayOperation } from './verification/replay-proof.js';
import { verifyOperation } from './verification/verify-proof.js';
import type { Operation } from './operation.js';

/** All operations of the engine API: routes and OpenAPI document are generated from this list. */
export const OPERATIONS: readonly Operation[] = [
  executeOperation,
  agentAdmissionOperation,
  readAdmissionOperation,
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
