import type { Gate } from './gate.js';
import { NotAdmittedError } from './not-admitted.js';
import type { Admission } from './options.js';
import type { Outcome } from './outcome.js';
import { resultHash } from './plain-json.js';

/** Where a result of MCP names the proof of the decision behind it, in its `_meta`. */
export const PROOF_ID_META = 'svc/proof_id';
/** Where it says, in its `_meta`, that the tool did not run, and why: a `NotAdmittedCode`. */
export const NOT_ADMITTED_META = 'svc/not_admitted';

/** A request of MCP, as either end has it. */
export interface McpRequest {
  method: string;
  params?: Record<string, unknown>;
}

/**
 * A `tools/call`. A call that is not admitted gets the result that MCP has for a tool that failed,
 * so that the model reads why; one that asks for a task has no such result, and gets an error.
 */
export async function gatedCall(
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
    if (error instanceof NotAdmittedError && !isTask) return refused(error);
    throw error;
  }
}

/** The hash is of the result without its `_meta`, which either end may add to. */
function outcomeOf(result: unknown): Outcome | null {
  if (!isObject(result)) return { result: 'succeeded', resultHash: resultHash(result) };
  // A task has only begun: what becomes of it is not known here.
  if (isObject(result['task']) && !('content' in result)) return null;
  const own = Object.fromEntries(Object.entries(result).filter(([name]) => name !== '_meta'));
  return { result: own['isError'] === true ? 'failed' : 'succeeded', resultHash: resultHash(own) };
}

function withProof(result: unknown, admission: Admission | null): unknown {
  if (admission === null || !isObject(result)) return result;
  const meta = isObject(result['_meta']) ? result['_meta'] : {};
  return { ...result, _meta: { ...meta, [PROOF_ID_META]: admission.proofId } };
}

function refused({ code, message, proofId }: NotAdmittedError): object {
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
