import type { AgentEnvelope, AgentReceipt } from '../../protocol/schemas/admission.js';
import type { Facts } from '../../protocol/schemas/facts.js';
import { agentEnvelope, type Admitted } from '../engine/admission.js';
import { openEngine } from '../engine/engine.js';
import type { RequiredApproval, SdkError } from '../errors.js';
import { type EngineOptions, invalidInput, withoutUndefined } from '../options.js';
import type { AgentRun } from './run.js';

/** The members of an envelope about a call, besides agent and tool. */
export interface CallDetails {
  /** Plain JSON that the proof binds instead of the arguments. Only its hash is sent. */
  hashed?: unknown;
  /** The action: 1 to 128 characters A–Z, 0–9, `_ . : -`; by default that of the option `action`. */
  action?: string | undefined;
  /** Values that the policy decides on, by name. */
  facts?: Facts | undefined;
  /** A run of this agent, from `openRun`. */
  run?: AgentRun | undefined;
  /** The id that the model gave to the call; most frameworks pass it to the adapter. */
  toolCallId?: string | undefined;
  /** The W3C traceparent of the call. */
  traceparent?: string | undefined;
  /** The id of the parent proof of this call; default: the option `parentProofId`. */
  parentProofId?: string | undefined;
}

/** A call of a tool, as the gate sees it. */
export interface GatedCall extends Omit<CallDetails, 'hashed'> {
  tool: string;
  /** Plain JSON, read again after the admission: a call whose arguments changed does not run. */
  arguments: unknown;
  /** Data that the framework passes beside the arguments, for `describe`. */
  context?: unknown;
  /** Whether this request continues a call that returned without a result. */
  continues?: boolean;
  signal?: AbortSignal | undefined;
}

/** An admitted action. */
export interface Admission {
  tool: string;
  action: string;
  proofId: string;
  receipt: Admitted<AgentReceipt>;
  /** The run of the action, in which the outcome gets a number too. */
  run?: AgentRun;
}

/** How a call ended. */
export interface Outcome {
  result: 'succeeded' | 'failed';
  /** The result, whose hash is recorded if it is plain JSON. */
  value?: unknown;
  /** SHA-256 of the result's RFC 8785 form, instead of `value`. */
  resultHash?: string | undefined;
}

/** How long a call waits for an approval. */
export interface ApprovalWait {
  /** Milliseconds after which the call fails with `approval_required`. */
  waitMs: number;
  /** Called with the call when its wait begins: send `proofId` to an approver. */
  onPending?: (pending: PendingApproval) => void;
}

/** A call that waits for an approval. */
export interface PendingApproval {
  call: GatedCall;
  action: string;
  /** The proof that an approver decides about. */
  proofId: string;
  approval: RequiredApproval;
}

/** An outcome that could not be recorded. */
export interface LostOutcome {
  tool: string;
  action: string;
  /** The proof of the admission. */
  proofId: string;
  error: unknown;
  /** The outcome's envelope, for `admitHttp`: an envelope that is sent several times is recorded once. */
  envelope?: AgentEnvelope;
}

/**
 * Options of all adapters. Errors of `onAdmitted`, `onNotAdmitted`, `onOutcomeError`, `onPending` and `waitUntil`
 * are ignored.
 */
export interface CommonOptions {
  engine: EngineOptions;
  agent: { id: string; framework?: string };
  /** The id of the parent proof of the agent's actions. */
  parentProofId?: string;
  /** Timeout for a decision in milliseconds; default `engine.timeoutMs`. */
  decisionTimeoutMs?: number;
  /**
   * After a call that did not reach the engine, further calls fail at once for this many milliseconds;
   * then one call tries the engine again. Default 0: every call tries the engine.
   */
  breakerMs?: number;
  /** Waits for a required approval. Without this option, the call fails with `approval_required`. */
  approval?: ApprovalWait;
  /** Timeout for recording an outcome in milliseconds; default 10,000. */
  outcomeTimeoutMs?: number;
  /** Called for every admission, before the tool runs in the mode `enforce`. */
  onAdmitted?: (admission: Admission) => void;
  /** Called when an outcome could not be recorded. The caller gets the tool's result regardless. */
  onOutcomeError: (lost: LostOutcome) => void;
  /**
   * Receives the work that continues after a call, for platforms that would otherwise end the process.
   * The promise never rejects. With this callback, a call does not wait until its outcome is recorded.
   */
  waitUntil?: (work: Promise<void>) => void;
}

/** The default: a tool runs only after its admission. */
export interface Enforce {
  mode?: 'enforce';
  /** Called for every call that did not run; the caller gets the error too. */
  onNotAdmitted?: (error: SdkError) => void;
}

/** Every tool runs at once, without waiting for its admission. */
export interface Observe {
  mode: 'observe';
  /** Called for every call that gets no admission; the mode `enforce` runs no such call. */
  onNotAdmitted: (error: SdkError) => void;
}

/** Options of every adapter. */
export type GateOptions = CommonOptions & (Enforce | Observe);

/** Options of an adapter that finds tools by name, and of `openGate`. */
export type AdapterOptions = GateOptions & {
  /** The action of a tool for policies; default `actionOf`. */
  action?: (tool: string) => string;
  /**
   * Returns members to add to the envelope of a call. Called again after the admission, to detect
   * arguments and facts that changed meanwhile. If it throws, the call does not run.
   */
  describe?: (call: GatedCall) => CallDetails;
};

/** Rejects invalid options when a tool is wrapped, not when it is called. */
export function requireOptions(options: GateOptions): void {
  const { engine, agent, mode = 'enforce', onNotAdmitted, onOutcomeError } = options;
  openEngine(engine);
  agentEnvelope(engine.tenantId, {
    kind: 'admission',
    agent,
    action: 'ANY',
    ...withoutUndefined({ parent_proof_id: options.parentProofId }),
  });
  const { approval, breakerMs = 0, decisionTimeoutMs = 1 } = options;
  if (!(breakerMs >= 0)) throw invalid('/breakerMs', 'must be at least 0');
  if (!(decisionTimeoutMs > 0)) throw invalid('/decisionTimeoutMs', 'must be above 0');
  if (approval !== undefined && !(approval.waitMs > 0)) {
    throw invalid('/approval/waitMs', 'must be above 0');
  }
  if (!['enforce', 'observe'].includes(mode)) throw invalid('/mode', 'must be enforce or observe');
  if (typeof onOutcomeError !== 'function') throw invalid('/onOutcomeError', 'must be a function');
  if (mode === 'observe' && typeof onNotAdmitted !== 'function') {
    throw invalid('/onNotAdmitted', 'must be a function in the mode observe');
  }
}

function invalid(pointer: string, message: string): SdkError {
  return invalidInput(pointer, `${pointer}: ${message}`);
}
