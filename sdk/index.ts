export { canonicalHash, canonicalJson } from './canonical.js';
export * from './client.js';
export {
  type AgentInput,
  type ExecuteInput,
  admitHttp,
  agentEnvelope,
  executeIntentHttp,
  executeRequest,
  followAdmissionHttp,
  isReplayed,
  type Admitted,
  type Receipt,
} from './engine/admission.js';
export {
  admitBatchHttp,
  type BatchItem,
  type BatchProgress,
  type BatchSettings,
  type BatchItemResult,
  followBatchHttp,
  listBatchesHttp,
  readBatchHttp,
} from './engine/batch.js';
export {
  type Approval,
  type ApprovalInput,
  type ApprovalSubject,
  type Approver,
  type ApproverPrivateKey,
  type ApproverRegistration,
  createApproverRegistration,
  readApprovalRequest,
  signApproval,
  submitApproval,
  waitForApproval,
} from './engine/approvals.js';
export * from './engine/approvers.js';
export type { RequestHashEnvelope } from './engine/engine.js';
export * from './engine/keys.js';
export * from './engine/lifecycle.js';
export * from './engine/overlays.js';
export type { PageInput } from './engine/pages.js';
export * from './engine/proofs.js';
export {
  readReceiptEvidenceHttp,
  receiptEvidenceOf,
  type VerifiedReceiptEvidence,
} from './engine/receipt-evidence.js';
export * from './errors.js';
export * from './offline.js';
export type {
  CallOptions,
  EngineOptions,
  PublicOptions,
  ReceiptEvidenceOptions,
  RetryOptions,
} from './options.js';
export {
  LOOKUP_KINDS,
  lookupByBodyHttp,
  lookupHttp,
  readEvidenceHttp,
  verifyEvidence,
  type EvidenceAnswer,
  type Lookup,
  type LookupInput,
  type LookupKind,
  type LookupQuery,
  type LookupRequest,
  type PublicAnswer,
  type SnapshotFacts,
} from './public/lookup.js';
export type { Proved } from './public/evidence.js';
export * from './public/log-entry.js';
export * from './public/views.js';
export * from './public/wait.js';
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
  type PinnedLog,
  type PinnedLogKey,
  type TextOrBytes,
  type TlogProofResult,
  type UndecidableCause,
} from '../protocol/offline.js';
export {
  RUN_FAULTS,
  type RunFault,
  type RunFaultCode,
  type RunMemberResult,
  type RunResult,
} from '../protocol/run.js';
export type { RunPackage, RunStateDocument as RunState } from '../protocol/schemas/run.js';
export type { Aep } from '../protocol/schemas/aep.js';
export type {
  AgentEnvelope,
  AgentReceipt,
  ExecuteReceipt,
  ExecuteRequest,
} from '../protocol/schemas/admission.js';
export type {
  ApiKeyList,
  CreatedApiKey,
  KeyRestriction,
  ListedApiKey,
  Scope,
} from '../protocol/schemas/api-keys.js';
export type { RegisteredApprover } from '../protocol/schemas/approvals.js';
export type { Batch } from '../protocol/schemas/batch.js';
export type { Overlay, OverlayList, OverlayTest } from '../protocol/schemas/overlays.js';
export type {
  Facade as LookupResponse,
  NotFound,
  PublicHistory,
  PublicTrustChain,
  PublicTrustPackage,
} from '../protocol/schemas/facade.js';
export type {
  InclusionResponse,
  ProofExport,
  ReceiptEvidence,
  Replay,
} from '../protocol/schemas/proof-export.js';
export type { ListedProof, ProofView } from '../protocol/schemas/proof-view.js';
export type { Verdict } from '../protocol/schemas/verdict.js';
export type { PublicKeys } from '../protocol/snapshot/keys.js';
export type { VerificationStatus } from '../protocol/status.js';
