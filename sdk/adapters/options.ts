import { SdkError } from '../errors.js';
import type { AgentEnvelope, AgentReceipt } from '../../protocol/schemas/agent.js';
import { agentEnvelope } from '../engine/admit.js';
import { openEngine } from '../engine/engine.js';
import type { Admitted } from '../engine/receipt.js';
import type { EngineOptions } from '../options.js';
import type { NotAdmittedError } from './not-admitted.js';

/** An action that may be carried out. */
export interface Admission {
  tool: string;
  action: string;
  proofId: string;
  receipt: Admitted<AgentReceipt>;
}

/** What became of a tool, and could not be recorded. */
export interface LostOutcome {
  tool: string;
  action: string;
  /** Of the admission that it is the outcome of. */
  proofId: string;
  error: unknown;
  /** Kept and given to `admitHttp` later, it is recorded once, however often it is sent. */
  envelope?: AgentEnvelope;
}

/** What all adapters take. What a callback throws or rejects with is ignored: it decides nothing. */
export interface CommonOptions {
  /** Where admissions are asked for, with how much time and patience. */
  engine: EngineOptions;
  agent: { id: string; framework?: string };
  /** Of the action that the agent's actions follow from. */
  parentProofId?: string;
  /** An outcome is given up after so many milliseconds; 10,000. */
  outcomeTimeoutMs?: number;
  /** Told of every admission, before its tool runs in the mode `enforce`. */
  onAdmitted?: (admission: Admission) => void;
  /** Told of an outcome that could not be recorded: the caller gets the tool's result or error regardless. */
  onOutcomeError: (lost: LostOutcome) => void;
  /**
   * Handed the work that goes on after a call has returned, where a platform ends the process before
   * it is done unless it is told. It never rejects. With it, outcomes are not waited for.
   */
  waitUntil?: (work: Promise<void>) => void;
}

/** `enforce`, which is the default: a tool runs when it was admitted, and else it does not. */
export interface Enforce {
  mode?: 'enforce';
  /** Told of every call that was stopped, beside its caller. */
  onNotAdmitted?: (error: NotAdmittedError) => void;
}

/** Every tool runs, at once; what would have been stopped is told. */
export interface Observe {
  mode: 'observe';
  /** Told of every call that `enforce` would have stopped. */
  onNotAdmitted: (error: NotAdmittedError) => void;
}

/** What every adapter takes, whatever it is plugged into. */
export type GateOptions = CommonOptions & (Enforce | Observe);

/** Options of an adapter that meets tools by their names. */
export type AdapterOptions = GateOptions & {
  /** The action of a tool, for policies; `actionOf` the name where absent. */
  action?: (tool: string) => string;
};

/** Refuses what is wrong with the options when a tool is wrapped, and not when it is called. */
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
  if (!['enforce', 'observe'].includes(mode)) throw invalid('/mode', 'is enforce or observe');
  if (typeof onOutcomeError !== 'function') throw invalid('/onOutcomeError', 'is a function');
  if (mode === 'observe' && typeof onNotAdmitted !== 'function') {
    throw invalid('/onNotAdmitted', 'is a function: whoever only observes wants to know');
  }
}

function invalid(pointer: string, message: string): SdkError {
  return new SdkError('invalid_input', `${pointer}: ${message}`, { pointer });
}
