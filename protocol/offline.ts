/** Verification of proofs without the service. */

export { verifyOffline, type OfflineOptions } from './offline/export.js';
export { verifyTlogProof } from './offline/tlog-proof.js';
export {
  OFFLINE_FAULTS,
  UNDECIDABLE_CAUSES,
  type OfflineFault,
  type OfflineFaultCode,
  type OfflineResult,
  type Place,
  type TlogProofResult,
  type Undecidable,
  type UndecidableCause,
} from './offline/result.js';
export {
  PIN_ERRORS,
  type OfflineTrust,
  type PinErrorCode,
  type PinnedAepKey,
  type PinnedJwk,
} from './offline/trust.js';
export type { TextOrBytes } from './offline/read.js';
