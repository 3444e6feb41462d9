import { ProtocolError } from '../../protocol/errors.js';
import type { AgentEnvelope } from '../../protocol/schemas/admission.js';
import { admitHttp, agentEnvelope } from '../engine/admission.js';
import { SdkError } from '../errors.js';
import { type Admission, type GateOptions, NotAdmittedError } from './options.js';
import { plainHash } from './plain-json.js';
import { actionOf } from './tool.js';

export interface PlannedCall {
  tool: string;
  action: string;
  /** SHA-256 of the arguments' RFC 8785 form. The arguments stay in this process. */
  argumentsHash: string;
}

/** Hashes the arguments. Throws `NotAdmittedError` for a call that no proof can describe. */
export function planCall(
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

export async function requestAdmission(
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
    return { tool, action, proofId: receipt.registry_proof_id, receipt };
  } catch (cause) {
    throw notAdmitted(tool, action, cause);
  }
}

function notAdmitted(tool: string, action: string, cause: unknown): NotAdmittedError {
  if (!(cause instanceof SdkError)) {
    return new NotAdmittedError('undecided', tool, 'its admission failed', { action, cause });
  }
  const { code, message, denial } = cause;
  const proofId = denial?.receipt.registry_proof_id ?? cause.proofId;
  const details = { action, cause, ...(proofId !== undefined && { proofId }) };
  if (denial !== undefined) {
    const reason = `denied by policy: ${message}`;
    return new NotAdmittedError('denied', tool, reason, { ...details, denial });
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
  /** SHA-256 of the result's RFC 8785 form, if it has one. */
  resultHash?: string | undefined;
}

const OUTCOME_TIMEOUT_MS = 10_000;

/**
 * Records an outcome. Never rejects: a failed record must not hide the tool's own result. Ignores the
 * caller's signal, because the tool did run.
 */
export async function recordOutcome(
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
    await admitHttp({ ...engine, timeoutMs: outcomeTimeoutMs }, envelope);
  } catch (error) {
    const lost = { tool, action, proofId, error };
    notify(onOutcomeError, envelope === undefined ? lost : { ...lost, envelope });
  }
}

/** Calls a callback. Its errors must not replace the tool's result. */
export function notify<T>(callback: ((value: T) => unknown) | undefined, value: T): void {
  try {
    Promise.resolve(callback?.(value)).catch(() => undefined);
  } catch {
    // As above.
  }
}
