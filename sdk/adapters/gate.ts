import { attempt, ProtocolError } from '../../protocol/errors.js';
import type { AgentEnvelope, AgentReceipt } from '../../protocol/schemas/admission.js';
import { admitHttp, agentEnvelope } from '../engine/admission.js';
import { receiptEvidenceOf } from '../engine/receipt-evidence.js';
import { SdkError } from '../errors.js';
import {
  type AdapterOptions,
  type Admission,
  NotAdmittedError,
  requireOptions,
  type GateOptions,
} from './options.js';
import { plainHash, resultHash } from './plain-json.js';
import { followStream } from './stream.js';
import { actionOf } from './tool.js';

/** One call of a tool, as an adapter sees it. */
export interface ToolCall<R> {
  tool: string;
  /** The arguments: read for the admission, and again before the tool runs. */
  args: () => unknown;
  signal?: AbortSignal | undefined;
  /** Runs the tool; with null in the mode `observe`. */
  run: (admission: Admission | null) => R | PromiseLike<R>;
  /** The outcome that a result shows, null if still open. By default every result is a success. */
  outcomeOf?: (result: Awaited<R>) => Outcome | null;
}

/** Runs an admitted tool, and records its outcome. Throws `NotAdmittedError` if the tool did not run. */
export type Gate = <R>(call: ToolCall<R>) => Promise<Awaited<R>>;

/** Throws `SdkError` (`invalid_input`) for options that would fail every call. */
export function openGate(given: AdapterOptions, framework?: string): Gate {
  const agent = { ...(framework !== undefined && { framework }), ...given.agent };
  const options = { ...given, agent };
  requireOptions(options);
  return options.mode === 'observe' ? observe : enforce;

  async function enforce<R>(call: ToolCall<R>): Promise<Awaited<R>> {
    let admission: Admission;
    try {
      const planned = planCall(call.tool, options.action, call.args);
      admission = await requestAdmission(options, planned, call.signal);
      await requireUnchanged(admission, planned, call);
    } catch (error) {
      if (error instanceof NotAdmittedError) notify(options.onNotAdmitted, error);
      throw error;
    }
    notify(options.onAdmitted, admission);
    return runTool(call, admission, (outcome) => record(admission, outcome));
  }

  /** Runs the tool without waiting for the decision; its caller does not wait for the record. */
  function observe<R>(call: ToolCall<R>): Promise<Awaited<R>> {
    const request = async (): Promise<Admission | null> => {
      try {
        const planned = planCall(call.tool, options.action, call.args);
        const admission = await requestAdmission(options, planned, undefined);
        notify(options.onAdmitted, admission);
        return admission;
      } catch (error) {
        notify(options.onNotAdmitted, error as NotAdmittedError);
        return null;
      }
    };
    // Requested before the tool runs, because the tool may change its arguments.
    const admitted = request();
    return runTool(call, null, (outcome) => {
      const recorded = admitted.then((admission) =>
        admission === null ? undefined : recordOutcome(options, admission, outcome),
      );
      notify(options.waitUntil, recorded);
      return Promise.resolve();
    });
  }

  /** The caller may have aborted, or changed the arguments, during the admission. */
  async function requireUnchanged<R>(
    admission: Admission,
    { argumentsHash }: PlannedCall,
    call: ToolCall<R>,
  ): Promise<void> {
    const { tool, action, proofId } = admission;
    const isUnchanged = attempt(() => plainHash(call.args())) === argumentsHash;
    if (isUnchanged && call.signal?.aborted !== true) return;
    await record(admission, { result: 'failed' });
    const [code, reason] = isUnchanged
      ? (['aborted', 'aborted'] as const)
      : (['arguments_changed', 'its arguments changed during the admission'] as const);
    throw new NotAdmittedError(code, tool, reason, { action, proofId });
  }

  async function record(admission: Admission, outcome: Outcome): Promise<void> {
    const recorded = recordOutcome(options, admission, outcome);
    if (options.waitUntil === undefined) return recorded;
    notify(options.waitUntil, recorded);
  }
}

/** Runs the tool. `onEnd`, which never rejects, gets the outcome before the caller gets the result. */
async function runTool<R>(
  { run, outcomeOf = success }: ToolCall<R>,
  admission: Admission | null,
  onEnd: (outcome: Outcome) => Promise<void>,
): Promise<Awaited<R>> {
  let result: Awaited<R>;
  try {
    result = await run(admission);
  } catch (error) {
    await onEnd({ result: 'failed' });
    throw error;
  }
  const stream = followStream(result, onEnd);
  if (stream !== null) return stream as Awaited<R>;
  const outcome = outcomeOf(result);
  if (outcome !== null) await onEnd(outcome);
  return result;
}

function success(result: unknown): Outcome {
  return { result: 'succeeded', resultHash: resultHash(result) };
}

export interface PlannedCall {
  tool: string;
  action: string;
  /** SHA-256 of the arguments' RFC 8785 form. The arguments stay in this process. */
  argumentsHash: string;
}

/** Hashes the arguments. Throws `NotAdmittedError` if they or the tool's name do not allow it. */
function planCall(
  tool: string,
  chooseAction: (tool: string) => string = actionOf,
  args: () => unknown,
): PlannedCall {
  try {
    return { tool, action: chooseAction(tool), argumentsHash: plainHash(args()) };
  } catch (cause) {
    const reason =
      cause instanceof ProtocolError
        ? `${cause.pointer ?? ''}: ${cause.message}`
        : cause instanceof Error
          ? cause.message
          : 'its arguments cannot be hashed';
    const message = `no proof can describe its call: ${reason}`;
    throw new NotAdmittedError('invalid_call', String(tool), message, { cause });
  }
}

async function requestAdmission(
  options: GateOptions,
  { tool, action, argumentsHash }: PlannedCall,
  callSignal: AbortSignal | undefined,
): Promise<Admission> {
  const { engine, agent, parentProofId } = options;
  const signals = [engine.signal, callSignal].filter((signal) => signal !== undefined);
  try {
    const receipt = await admitHttp(
      { ...engine, ...(signals.length > 0 && { signal: AbortSignal.any(signals) }) },
      {
        kind: 'admission',
        agent,
        action,
        tool,
        arguments_hash: argumentsHash,
        ...(parentProofId !== undefined && { parent_proof_id: parentProofId }),
      },
    );
    notify(options.waitUntil, evidenceSettled(receipt));
    return { tool, action, proofId: receipt.registry_proof_id, receipt };
  } catch (cause) {
    throw notAdmitted(tool, action, cause);
  }
}

function notAdmitted(tool: string, action: string, cause: unknown): NotAdmittedError {
  if (!(cause instanceof SdkError)) {
    return new NotAdmittedError('undecided', tool, 'its admission failed', { action, cause });
  }
  const { approval, code, message, denial } = cause;
  const proofId = denial?.receipt.registry_proof_id ?? cause.proofId;
  const details = { action, cause, ...(proofId !== undefined && { proofId }) };
  if (denial !== undefined) {
    const reason = `denied by policy: ${message}`;
    return new NotAdmittedError('denied', tool, reason, { ...details, denial });
  }
  if (approval !== undefined) {
    return new NotAdmittedError('approval_required', tool, message, { ...details, approval });
  }
  if (code === 'aborted') return new NotAdmittedError('aborted', tool, 'aborted', details);
  if (code === 'invalid_input') {
    const reason = `no proof can describe its call: ${message}`;
    return new NotAdmittedError('invalid_call', tool, reason, details);
  }
  return new NotAdmittedError('undecided', tool, `not admitted: ${message}`, details);
}

export interface Outcome {
  result: 'succeeded' | 'failed';
  /** SHA-256 of the result's RFC 8785 form; absent for a result that is not plain JSON. */
  resultHash?: string | undefined;
}

const OUTCOME_TIMEOUT_MS = 10_000;

/**
 * Records an outcome. Never rejects: a failed record must not hide the tool's own result. Ignores the
 * caller's signal, because the tool did run.
 */
async function recordOutcome(
  options: GateOptions,
  { tool, action, proofId }: Admission,
  { result, resultHash }: Outcome,
): Promise<void> {
  const { engine, agent, outcomeTimeoutMs = OUTCOME_TIMEOUT_MS, onOutcomeError } = options;
  let envelope: AgentEnvelope | undefined;
  try {
    envelope = agentEnvelope(engine.tenantId, {
      kind: 'outcome',
      agent,
      parent_proof_id: proofId,
      result,
      ...(resultHash !== undefined && { result_hash: resultHash }),
    });
    const receipt = await admitHttp({ ...engine, timeoutMs: outcomeTimeoutMs }, envelope);
    notify(options.waitUntil, evidenceSettled(receipt));
  } catch (error) {
    const lost = { tool, action, proofId, error };
    notify(onOutcomeError, envelope === undefined ? lost : { ...lost, envelope });
  }
}

/** Ends when the evidence of a receipt is stored, or `onError` has the reason why not. */
const evidenceSettled = (receipt: AgentReceipt): Promise<void> =>
  receiptEvidenceOf(receipt).then(
    () => undefined,
    () => undefined,
  );

/** Calls a callback. Its errors must not replace the tool's result. */
function notify<T>(callback: ((value: T) => unknown) | undefined, value: T): void {
  try {
    Promise.resolve(callback?.(value)).catch(() => undefined);
  } catch {
    // Errors of callbacks are ignored.
  }
}
