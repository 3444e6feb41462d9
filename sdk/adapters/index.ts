export { actionOf } from './tool.js';
export { admitted, type AdmittedOptions } from './function.js';
export { openGate, type Gate, type OutcomeOf, type CallOutcome } from './gate.js';
export { openRun, type AgentRun } from './run.js';
export type {
  AdapterOptions,
  Admission,
  ApprovalWait,
  CallDetails,
  CommonOptions,
  Enforce,
  GatedCall,
  GateOptions,
  LostOutcome,
  Observe,
  Outcome,
  PendingApproval,
} from './options.js';
