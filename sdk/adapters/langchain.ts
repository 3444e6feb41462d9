import { SdkError } from '../errors.js';
import { copyWith } from './copy-with.js';
import { openGate } from './gate.js';
import type { AdapterOptions } from './options.js';

/** A `StructuredTool` of `@langchain/core`, and so a `DynamicStructuredTool` or what `tool()` makes. */
export interface AnyLangChainTool {
  name: string;
  /** Comes to the tool's `_call` in the end, as every other way to call it. */
  invoke(input: never, config?: never): Promise<unknown>;
}

type Call = (input: unknown, manager?: unknown, config?: { signal?: AbortSignal }) => unknown;

/**
 * A copy of a LangChain tool that is admitted before it runs; the tool it was made of stays as it
 * is, and is not to be given to an agent. The arguments are hashed as the tool gets them, after its
 * schema. A call that is not admitted throws `NotAdmittedError`, as a tool of LangChain that failed.
 *
 * Throws `SdkError` (`invalid_input`) for what is no such tool.
 */
export function admitTool<T extends AnyLangChainTool>(tool: T, options: AdapterOptions): T {
  const gate = openGate({ ...options, agent: { framework: 'langchain', ...options.agent } });
  const original = Reflect.get(tool, '_call') as Call | undefined;
  if (typeof original !== 'function') {
    throw new SdkError('invalid_input', `${tool.name} is no StructuredTool`);
  }
  const call: Call = (input, manager, config) =>
    gate.call<unknown>({
      tool: tool.name,
      args: () => input,
      signal: config?.signal,
      // On the tool itself: a class of its own may keep what the copy cannot reach.
      run: () => original.call(tool, input, manager, config),
    });
  return copyWith(tool, '_call', call);
}
