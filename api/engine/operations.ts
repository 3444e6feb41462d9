import { admissionOperation } from './admission.js';
import { executeOperation } from './execute.js';
import { healthzOperation, readyzOperation } from './health.js';
import { inclusionOperation } from './inclusion.js';
import type { Operation } from './operation.js';
import { readProofOperation } from './read-proof.js';

/**
 * All that the engine API can do: what is not here is neither served nor documented. A path that is
 * written out comes before one that a parameter could stand for.
 */
export const OPERATIONS: readonly Operation[] = [
  executeOperation,
  admissionOperation,
  readProofOperation,
  inclusionOperation,
  healthzOperation,
  readyzOperation,
];
