import { isObject } from '../../protocol/json.js';
import type { CallOutcome } from './gate.js';
import type { SdkError } from '../errors.js';
import type { Admission } from './options.js';

/** Member of an MCP result's `_meta` with the proof of the decision. */
export const PROOF_ID_META = 'svc/proof_id';
/** Member of an MCP result's `_meta` with the code of an `SdkError`: the tool did not run. */
export const NOT_ADMITTED_META = 'svc/not_admitted';

/** Hashes the result without `_meta`, which client and server may extend. */
export const outcomeOf = (result: unknown): CallOutcome => {
  if (!isObject(result)) return { result: 'succeeded', value: result };
  const { resultType = 'complete', task } = result;
  if (resultType === 'input_required') return 'next_round';
  // Null if the call has only started a task, whose outcome is not known yet.
  if (resultType !== 'complete' || (isObject(task) && !('content' in result))) return null;
  const own = Object.fromEntries(Object.entries(result).filter(([name]) => name !== '_meta'));
  return { result: own['isError'] === true ? 'failed' : 'succeeded', value: own };
};

export function withProof(result: unknown, admission: Pick<Admission, 'proofId'> | null): unknown {
  if (admission === null || !isObject(result)) return result;
  const meta = isObject(result['_meta']) ? result['_meta'] : {};
  return { ...result, _meta: { ...meta, [PROOF_ID_META]: admission.proofId } };
}

export function failedTool({ code, message, proofId }: SdkError): object {
  return {
    isError: true,
    content: [{ type: 'text', text: message }],
    _meta: {
      [NOT_ADMITTED_META]: code,
      ...(proofId !== undefined && { [PROOF_ID_META]: proofId }),
    },
  };
}
