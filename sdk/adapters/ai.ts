import { invalidInput } from '../options.js';
import { openGate, type Gate } from './gate.js';
import type { AdapterOptions } from './options.js';
import { isAsyncGenerator } from './stream.js';
import { callIdOf, copyWith } from './tool.js';

/** Options of `admitTools`. */
export type AiOptions<Name extends string = string> = (AdapterOptions | Gate) & {
  /** Tools without an `execute`, which run outside of this process: at the provider or in a browser. */
  elsewhere?: readonly Name[];
};

type Execute = (
  input: unknown,
  options: { abortSignal?: AbortSignal; toolCallId?: string },
) => unknown;

/**
 * Copies a record of tools of the AI SDK (`ai`) with an `execute` that is admitted first. The hash
 * covers the arguments that the tool's schema returns. A call without an admission throws `SdkError`,
 * which the SDK shows to the model as the error of the tool.
 *
 * Throws `SdkError` (`invalid_input`) for a tool without `execute` that is not in `elsewhere`: this
 * adapter cannot stop it.
 */
export function admitTools<T extends Record<string, object>>(
  tools: T,
  options: AiOptions<keyof T & string>,
): T {
  const { elsewhere = [], ...rest } = options;
  const gate = openGate(rest, 'ai-sdk');
  const entries = Object.entries(tools).map(([name, tool]): [string, object] => {
    const execute: unknown = Reflect.get(tool, 'execute');
    if (typeof execute === 'function') {
      return [name, copyWith(tool, 'execute', gated(gate, name, execute.bind(tool) as Execute))];
    }
    if (elsewhere.includes(name)) return [name, tool];
    const message = `${name} has no execute function: name it in elsewhere if it runs outside of this process`;
    throw invalidInput('/elsewhere', message);
  });
  return Object.fromEntries(entries) as T;
}

function gated(gate: Gate, tool: string, execute: Execute): Execute {
  const call: Execute = (input, options) =>
    gate.guard<unknown>(
      {
        tool,
        arguments: input,
        toolCallId: callIdOf(options.toolCallId),
        context: options,
        signal: options.abortSignal,
      },
      () => execute(input, options),
    );
  // The AI SDK recognizes a stream by the result, which exists only after the decision: so the wrapper
  // checks the type of the function. If a function of another type returns a generator, the result is the
  // last value of that generator.
  if (Object.prototype.toString.call(execute) === '[object AsyncGeneratorFunction]') {
    return async function* (input, options) {
      yield* (await call(input, options)) as AsyncGenerator<unknown>;
    };
  }
  return async (input, options) => {
    const result = await call(input, options);
    if (!isAsyncGenerator(result)) return result;
    let last: unknown;
    for await (const value of result) last = value;
    return last;
  };
}
