import * as admissions from './admission/operations.js';
import { createBatchOperation } from './batches/create-batch.js';
import * as batches from './batches/results.js';
import * as packages from './lifecycle/packages.js';
import * as revocations from './lifecycle/revocations.js';
import * as shareTokens from './lifecycle/share-tokens.js';
import { exportOperation } from './proofs/export-proof.js';
import { inclusionOperation } from './proofs/inclusion.js';
import { listProofsOperation } from './proofs/list-proofs.js';
import { readProofOperation } from './proofs/read-proof.js';
import { SERVICE_OPERATIONS } from './service.js';
import { replayOperation } from './verification/replay-proof.js';
import { verifyOperation } from './verification/verify-proof.js';
import type { Operation } from './operation.js';

/** All operations of the engine API: routes and OpenAPI document are generated from this list. */
export const OPERATIONS: readonly Operation[] = [
  admissions.executeOperation,
  admissions.agentAdmissionOperation,
  admissions.readAdmissionOperation,
  createBatchOperation,
  batches.listBatchesOperation,
  batches.readBatchOperation,
  batches.batchResultsOperation,
  listProofsOperation,
  verifyOperation,
  replayOperation,
  readProofOperation,
  inclusionOperation,
  exportOperation,
  revocations.revokeArtifactOperation,
  revocations.readRevocationOperation,
  shareTokens.createShareTokenOperation,
  shareTokens.listShareTokensOperation,
  shareTokens.revokeShareTokenOperation,
  packages.createPackageOperation,
  packages.listPackagesOperation,
  packages.readPackageOperation,
  ...SERVICE_OPERATIONS,
];
