import { isNotAdmitted, SdkError } from '../errors.js';
import { type Gate, openGate } from './gate.js';
import type { AdapterOptions } from './options.js';
import { callIdOf } from './tool.js';

interface ToolOptions {
  name?: string;
  execute?: Execute;
  /** A Zod schema, which checks every output, or a JSON schema, which checks no output. */
  outputSchema?: OutputSchema;
  errorFunction?: unknown;
}

interface OutputSchema {
  parse?: (output: unknown) => unknown;
}

interface CallDetails {
  signal?: AbortSignal;
  toolCall?: { callId?: string };
}

type Execute = (input: unknown, context?: unknown, details?: CallDetails) => unknown;

/**
 * Returns a `tool` function of `@openai/agents` whose tools are admitted before they run. The hash covers
 * the arguments that the tool's schema returns. When a call is not admitted, the model gets the reason as
 * the result of the tool; a tool with an `outputSchema` and an `errorFunction` throws the `SdkError` to
 * its `errorFunction` instead.
 *
 * @typeParam F the type of this function
 * @param tool `tool` of `@openai/agents`. The returned function throws `SdkError` (`invalid_input`) for
 * options without `execute` or a name.
 */
export function admitTool<F extends (options: never) => unknown>(
  tool: F,
  options: AdapterOptions | Gate,
): F {
  const gate = openGate(options, 'openai-agents');
  const create = tool as unknown as (given: ToolOptions) => unknown;
  const admitted = (given: ToolOptions): unknown => {
    const { execute, name = execute?.name, outputSchema, errorFunction } = given;
    if (execute === undefined || name === undefined || name === '') {
      throw new SdkError('invalid_input', 'a tool needs a name and an execute function');
    }
    const isZod = typeof outputSchema?.parse === 'function';
    const gated: Execute = async (input, context, details) => {
      const call = {
        ...{ tool: name, arguments: input, context },
        ...{ toolCallId: callIdOf(details?.toolCall?.callId), signal: details?.signal },
      };
      const progress = { hasRun: false };
      try {
        return await gate.guard(call, () => {
          progress.hasRun = true;
          return execute(input, context, details);
        });
      } catch (error) {
        // The tool itself may call a second admitted tool and throw the error of that call.
        const isRejected = !progress.hasRun && isNotAdmitted(error);
        // Returns the reason as the result, because the default error function would tell the model to try again.
        const isResult = isRejected && error.code !== 'aborted';
        if (!isResult || (outputSchema && typeof errorFunction === 'function')) throw error;
        return isZod ? new Reason(error.message) : error.message;
      }
    };
    const checked = isZod && { outputSchema: orReason(outputSchema) };
    return create({ ...given, name, ...checked, execute: gated });
  };
  return admitted as unknown as F;
}

/**
 * The reason why a call did not run. Versions of the framework before 0.14 ignore output schemas, and show the JSON of
 * the result to the model.
 */
class Reason {
  constructor(private readonly text: string) {}

  toJSON(): string {
    return this.text;
  }
}

/** Accepts the reason why a call did not run: an output that the schema rejects would end the agent's run. */
const orReason = (schema: OutputSchema): object =>
  Object.create(schema, {
    parse: {
      value: (output: unknown): unknown =>
        output instanceof Reason ? output.toJSON() : schema.parse?.(output),
    },
  }) as object;
