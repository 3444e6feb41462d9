import { SdkError } from '../errors.js';
import { type Gate, openGate } from './gate.js';
import { type AdapterOptions, NotAdmittedError } from './options.js';

interface ToolOptions {
  name?: string;
  execute?: Execute;
  outputSchema?: unknown;
}

interface CallDetails {
  signal?: AbortSignal;
  toolCall?: { callId?: string };
}

type Execute = (input: unknown, context?: unknown, details?: CallDetails) => unknown;

/**
 * Returns a `tool` function of `@openai/agents` whose tools are admitted before they run. The hash
 * covers the arguments that the tool's schema returns. The model gets the reason of a call without an
 * admission as the result of the tool; a tool with an `outputSchema` throws `NotAdmittedError` to its
 * `errorFunction` instead.
 *
 * @typeParam F the type of this function
 * @param tool `tool` of `@openai/agents`. The returned function throws `SdkError` (`invalid_input`)
 *   for options without `execute` or a name.
 */
export function admitTool<F extends (options: never) => unknown>(
  tool: F,
  options: AdapterOptions | Gate,
): F {
  const gate = openGate(options, 'openai-agents');
  const create = tool as unknown as (given: ToolOptions) => unknown;
  const admitted = (given: ToolOptions): unknown => {
    const { execute, name = execute?.name } = given;
    if (execute === undefined || name === undefined || name === '') {
      throw new SdkError('invalid_input', 'a tool needs a name and an execute function');
    }
    const gated: Execute = async (input, context, details) => {
      const call = {
        ...{ tool: name, arguments: input, context },
        ...{ toolCallId: details?.toolCall?.callId, signal: details?.signal },
      };
      try {
        return await gate.guard(call, () => execute(input, context, details));
      } catch (error) {
        // The default error function would tell the model to try again.
        const isResult = error instanceof NotAdmittedError && error.code !== 'aborted';
        if (isResult && given.outputSchema === undefined) return error.message;
        throw error;
      }
    };
    return create({ ...given, name, execute: gated });
  };
  return admitted as unknown as F;
}
