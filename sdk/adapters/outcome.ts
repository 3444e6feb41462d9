import type { AgentEnvelope } from '../../protocol/schemas/agent.js';
import { admitHttp, agentEnvelope } from '../engine/admit.js';
import { notify } from './notify.js';
import type { Admission, GateOptions } from './options.js';

/** What became of a tool. */
export interface Outcome {
  result: 'succeeded' | 'failed';
  /** SHA-256 of the result's RFC 8785 form, where it has one. */
  resultHash?: string | undefined;
}

const OUTCOME_TIMEOUT_MS = 10_000;

/**
 * Records an outcome, and never rejects: what became of the tool is the caller's, whether or not it
 * could be recorded. The caller's own signal does not end it: the tool did run.
 */
export async function linkOutcome(
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
    const about = { tool, action, proofId, error };
    notify(onOutcomeError, envelope === undefined ? about : { ...about, envelope });
  }
}
