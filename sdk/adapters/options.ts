import type { AgentEnvelope, AgentReceipt } from '../../protocol/schemas/admission.js';
import { agentEnvelope, type Admitted } from '../engine/admission.js';
import { openEngine } from '../engine/engine.js';
import { type Denial, type RequiredApproval, SdkError } from '../errors.js';
import type { EngineOptions } from '../options.js';

/** An admitted action. */
export interface Admission {
  tool: string;
  action: string;
  proofId: string;
  receipt: Admitted<AgentReceipt>;
}

/** An outcome that could not be recorded. */
export interface LostOutcome {
  tool: string;
  action: string;
  /** The proof of the admission. */
  proofId: string;
  error: unknown;
  /** The outcome's envelope, for `admitHttp`: however often it is sent, it is recorded once. */
  envelope?: AgentEnvelope;
}

/** Options of all adapters. Errors of callbacks are ignored. */
export interface CommonOptions {
  engine: EngineOptions;
  agent: { id: string; framework?: string };
  /** The proof that the agent's actions follow from. */
  parentProofId?: string;
  /** Timeout for recording an outcome in milliseconds; default 10,000. */
  outcomeTimeoutMs?: number;
  /** Called for every admission, before the tool runs in the mode `enforce`. */
  onAdmitted?: (admission: Admission) => void;
  /** Called when an outcome could not be recorded. The caller gets the tool's result regardless. */
  onOutcomeError: (lost: LostOutcome) => void;
  /**
   * Receives the work that continues after a call, for platforms that would otherwise end the
   * process. It never rejects. With this callback, a call does not wait for the record.
   */
  waitUntil?: (work: Promise<void>) => void;
}

/** The default: a tool runs only after its admission. */
export interface Enforce {
  mode?: 'enforce';
  /** Called for every stopped call; the caller gets the error too. */
  onNotAdmitted?: (error: NotAdmittedError) => void;
}

/** Every tool runs at once. */
export interface Observe {
  mode: 'observe';
  /** Called for every call that `enforce` would have stopped. */
  onNotAdmitted: (error: NotAdmittedError) => void;
}

/** Options of every adapter. */
export type GateOptions = CommonOptions & (Enforce | Observe);

/** Options of an adapter that finds tools by name. */
export type AdapterOptions = GateOptions & {
  /** The action of a tool for policies; default `actionOf`. */
  action?: (tool: string) => string;
};

/** Rejects invalid options when a tool is wrapped, not when it is called. */
export function requireOptions(options: GateOptions): void {
  const { engine, agent, mode = 'enforce', onNotAdmitted, onOutcomeError } = options;
  const parent_proof_id = options.parentProofId;
  openEngine(engine);
  agentEnvelope(engine.tenantId, {
    kind: 'admission',
    agent,
    action: 'ANY',
    ...(parent_proof_id !== undefined && { parent_proof_id }),
  });
  if (!['enforce', 'observe'].includes(mode)) throw invalid('/mode', 'must be enforce or observe');
  if (typeof onOutcomeError !== 'function') throw invalid('/onOutcomeError', 'must be a function');
  if (mode === 'observe' && typeof onNotAdmitted !== 'function') {
    throw invalid('/onNotAdmitted', 'must be a function in the mode observe');
  }
}

function invalid(pointer: string, message: string): SdkError {
  return new SdkError('invalid_input', `${pointer}: ${message}`, { pointer });
}

/**
 * Why a tool did not run: a closed set.
 *
 * - `denied`: a proven policy denial; see `denial.receipt` and `proofId`.
 * - `approval_required`: the action needs an approval; see `approval` and `proofId`.
 * - `undecided`: no admission in time. The engine was unreachable, rejected the request, or sent an
 *   unexpected response; `cause` is the `SdkError`. With a `proofId`, a decision may follow.
 * - `invalid_call`: arguments that are not plain JSON, or a name without an action. No request was sent.
 * - `arguments_changed`: the arguments differ from the admitted ones.
 * - `aborted`: the caller's signal fired.
 */
export const NOT_ADMITTED_CODES = [
  'denied',
  'approval_required',
  'undecided',
  'invalid_call',
  'arguments_changed',
  'aborted',
] as const;
/** One of `NOT_ADMITTED_CODES`. */
export type NotAdmittedCode = (typeof NOT_ADMITTED_CODES)[number];

/** Known details of the decision. */
export interface NotAdmittedDetails {
  action?: string;
  proofId?: string;
  denial?: Denial;
  approval?: RequiredApproval;
  cause?: unknown;
}

/** Thrown by an adapter instead of the tool's result: the tool did not run. */
export class NotAdmittedError extends Error {
  override readonly name = 'NotAdmittedError';
  readonly code: NotAdmittedCode;
  readonly tool: string;
  readonly action?: string;
  /** The proof of the decision, if any. */
  readonly proofId?: string;
  readonly denial?: Denial;
  readonly approval?: RequiredApproval;

  constructor(code: NotAdmittedCode, tool: string, why: string, details: NotAdmittedDetails = {}) {
    const { cause, ...rest } = details;
    const proof = rest.proofId === undefined ? '' : ` (proof ${rest.proofId})`;
    super(`${tool} did not run: ${why}${proof}`, cause === undefined ? undefined : { cause });
    this.code = code;
    this.tool = tool;
    Object.assign(this, rest);
  }
}
