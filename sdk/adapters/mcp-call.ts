import type { Outcome } from './admission.js';
import type { Gate } from './gate.js';
import { NotAdmittedError } from './not-admitted.js';
import type { Admission } from './options.js';
import { resultHash } from './plain-json.js';

/** Member of an MCP result's `_meta` with the proof of the decision. */
export const PROOF_ID_META = 'svc/proof_id';
/** Member of an MCP result's `_meta` with a `NotAdmittedCode`: the tool did not run. */
export const NOT_ADMITTED_META = 'svc/not_admitted';

/** A request of MCP, on either side. */
export interface McpRequest {
  method: string;
  params?: Record<string, unknown>;
}

/**
 * Runs a `tools/call`. A call without an admission returns MCP's result of a failed tool, whose text
 * the model reads. A call that starts a task has no such result, and throws.
 */
export async function gateToolCall(
  gate: Gate,
  { params = {} }: McpRequest,
  signal: AbortSignal | undefined,
  { isTask, run }: { isTask: boolean; run: () => unknown },
): Promise<unknown> {
  try {
    return await gate.call<unknown>({
      tool: params['name'] as string,
      args: () => params['arguments'] ?? {},
      signal,
      run: async (admission) => withProof(await run(), admission),
      outcomeOf,
    });
  } catch (error) {
    if (error instanceof NotAdmittedError && !isTask) return failedTool(error);
    throw error;
  }
}

/** The hash excludes `_meta`, which client and server may extend. */
function outcomeOf(result: unknown): Outcome | null {
  if (!isObject(result)) return { result: 'succeeded', resultHash: resultHash(result) };
  // A task has only begun: its outcome is unknown here.
  if (isObject(result['task']) && !('content' in result)) return null;
  const own = Object.fromEntries(Object.entries(result).filter(([name]) => name !== '_meta'));
  return { result: own['isError'] === true ? 'failed' : 'succeeded', resultHash: resultHash(own) };
}

function withProof(result: unknown, admission: Admission | null): unknown {
  if (admission === null || !isObject(result)) return result;
  const meta = isObject(result['_meta']) ? result['_meta'] : {};
  return { ...result, _meta: { ...meta, [PROOF_ID_META]: admission.proofId } };
}

function failedTool({ code, message, proofId }: NotAdmittedError): object {
  return {
    isError: true,
    content: [{ type: 'text', text: message }],
    _meta: {
      [NOT_ADMITTED_META]: code,
      ...(proofId !== undefined && { [PROOF_ID_META]: proofId }),
    },
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
