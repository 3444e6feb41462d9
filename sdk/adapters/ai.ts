import { SdkError } from '../errors.js';
import { copyWith } from './copy-with.js';
import { openGate, type Gate } from './gate.js';
import type { AdapterOptions } from './options.js';
import { isAsyncGenerator } from './stream.js';

/** Options of `admitTools`. */
export type AiOptions<Name extends string = string> = AdapterOptions & {
  /** Tools without an `execute`, which run where no adapter is: with the provider, or in a page. */
  elsewhere?: readonly Name[];
};

type Execute = (input: unknown, options: { abortSignal?: AbortSignal }) => unknown;

/**
 * A record of tools of the AI SDK (`ai`) whose `execute` is admitted first; everything else of them
 * stays. The arguments are hashed as the tool gets them, after its schema. A call that is not admitted
 * throws `NotAdmittedError`, which the SDK shows to the model as the error of the tool.
 *
 * Throws `SdkError` (`invalid_input`) for a tool without `execute` that `elsewhere` does not name:
 * nothing here could keep it from running.
 */
export function admitTools<T extends Record<string, object>>(
  tools: T,
  options: AiOptions<keyof T & string>,
): T {
  const { elsewhere = [], ...rest } = options;
  const gate = openGate({ ...rest, agent: { framework: 'ai-sdk', ...rest.agent } });
  const entries = Object.entries(tools).map(([name, tool]): [string, object] => {
    const execute: unknown = Reflect.get(tool, 'execute');
    if (typeof execute === 'function') {
      return [name, copyWith(tool, 'execute', gated(gate, name, execute.bind(tool) as Execute))];
    }
    if (elsewhere.includes(name)) return [name, tool];
    const message = `${name} has no execute, and is not named in elsewhere`;
    throw new SdkError('invalid_input', message, { pointer: '/elsewhere' });
  });
  return Object.fromEntries(entries) as T;
}

function gated(gate: Gate, tool: string, execute: Execute): Execute {
  const call: Execute = (input, options) =>
    gate.call<unknown>({
      tool,
      args: () => input,
      signal: options.abortSignal,
      run: () => execute(input, options),
    });
  // The SDK asks for a stream by what `execute` returns, which is before the decision: so the
  // declaration must tell. A stream of any other function gives its last value, as it does there.
  if (isGeneratorFunction(execute)) {
    return async function* (input, options) {
      yield* (await call(input, options)) as AsyncGenerator<unknown>;
    };
  }
  return async (input, options) => {
    const result = await call(input, options);
    return isAsyncGenerator(result) ? lastOf(result) : result;
  };
}

function isGeneratorFunction(execute: Execute): boolean {
  return Object.prototype.toString.call(execute) === '[object AsyncGeneratorFunction]';
}

async function lastOf(stream: AsyncGenerator<unknown>): Promise<unknown> {
  let last: unknown;
  for await (const value of stream) last = value;
  return last;
}
