export { canonicalHash, canonicalJson } from './canonical.js';
export { admitHttp, agentEnvelope, type AgentInput } from './engine/admit.js';
export {
  admitBatchHttp,
  type BatchItem,
  type BatchProgress,
  type BatchSettings,
} from './engine/batch.js';
export type { BatchItemResult } from './engine/batch-documents.js';
export { followBatchHttp } from './engine/batch-follow.js';
export type { RequestHashEnvelope } from './engine/envelope.js';
export { executeIntentHttp, executeRequest, type ExecuteInput } from './engine/execute.js';
export { exportProofHttp, type ExportFormat, type ExportFormats } from './engine/export.js';
export { followAdmissionHttp } from './engine/follow.js';
export {
  getProofInclusionHttp,
  type InclusionFormat,
  type InclusionFormats,
} from './engine/inclusion.js';
export {
  listProofPageHttp,
  listProofsHttp,
  type ProofFilter,
  type ProofPage,
} from './engine/list.js';
export { readProofHttp } from './engine/read.js';
export type { Admitted, Receipt } from './engine/receipt.js';
export { replayProofHttp, type ReplayInput } from './engine/replay.js';
export { verifyProofHttp, type VerifyInput } from './engine/verify.js';
export {
  isDenial,
  SDK_ERROR_CODES,
  SdkError,
  type Denial,
  type SdkErrorCode,
  type SdkErrorDetails,
  type ServiceProblem,
} from './errors.js';
export { verifyOffline, verifyTlogProof } from './offline.js';
export type { CallOptions, EngineOptions, PublicOptions, RetryOptions } from './options.js';
export {
  LOOKUP_KINDS,
  lookupByBodyHttp,
  lookupHttp,
  type Lookup,
  type LookupInput,
  type LookupKind,
  type LookupQuery,
} from './public/lookup.js';
export { pinsOf } from './public/pins.js';
export type { PublicAnswer, SnapshotFacts } from './public/registry.js';
export {
  readHistoryHttp,
  readPublicKeysHttp,
  readTrustChainHttp,
  readTrustPackageHttp,
  type ViewedKind,
  type ViewQuery,
} from './public/views.js';
export { waitForVerdictHttp } from './public/wait.js';
export type { JsonValue } from '../protocol/json.js';
export {
  OFFLINE_FAULTS,
  PIN_ERRORS,
  UNDECIDABLE_CAUSES,
  type OfflineFault,
  type OfflineFaultCode,
  type OfflineOptions,
  type OfflineResult,
  type OfflineTrust,
  type PinErrorCode,
  type PinnedAepKey,
  type PinnedJwk,
  type TextOrBytes,
  type TlogProofResult,
  type UndecidableCause,
} from '../protocol/offline.js';
export type { Aep } from '../protocol/schemas/aep.js';
export type { AgentEnvelope, AgentReceipt } from '../protocol/schemas/agent.js';
export type { Batch } from '../protocol/schemas/batch.js';
export type { ExecuteReceipt, ExecuteRequest } from '../protocol/schemas/execute.js';
export type { Facade } from '../protocol/schemas/facade.js';
export type { InclusionResponse } from '../protocol/schemas/inclusion.js';
export type { NotFound } from '../protocol/schemas/lookup.js';
export type { ProofExport } from '../protocol/schemas/proof-export.js';
export type { ListedProof } from '../protocol/schemas/proof-list.js';
export type { ProofView } from '../protocol/schemas/proof-view.js';
export type {
  PublicHistory,
  PublicTrustChain,
  PublicTrustPackage,
} from '../protocol/schemas/public-views.js';
export type { Replay } from '../protocol/schemas/replay.js';
export type { Verdict } from '../protocol/schemas/verdict.js';
export type { PublicKeys } from '../protocol/snapshot/keys.js';
export type { VerificationStatus } from '../protocol/status.js';
