import { agentAdmissionOperation } from './agent-admission.js';
import { admissionOperation } from './admission.js';
import { createPackageOperation } from './create-package.js';
import { createShareTokenOperation } from './create-share-token.js';
import { docsOperation, docsStyleOperation } from './docs.js';
import { executeOperation } from './execute.js';
import { exportOperation } from './export-proof.js';
import { healthzOperation, readyzOperation } from './health.js';
import { inclusionOperation } from './inclusion.js';
import { openApiOperation } from './openapi.js';
import { listPackagesOperation } from './list-packages.js';
import { listShareTokensOperation } from './list-share-tokens.js';
import { listProofsOperation } from './list-proofs.js';
import type { Operation } from './operation.js';
import { readPackageOperation } from './read-package.js';
import { readProofOperation } from './read-proof.js';
import { readRevocationOperation } from './read-revocation.js';
import { replayOperation } from './replay-proof.js';
import { verifyOperation } from './verify-proof.js';
import { revokeArtifactOperation } from './revoke-artifact.js';
import { revokeShareTokenOperation } from './revoke-share-token.js';

/**
 * All that the engine API can do: what is not here is neither served nor documented.
 */
export const OPERATIONS: readonly Operation[] = [
  executeOperation,
  agentAdmissionOperation,
  admissionOperation,
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
