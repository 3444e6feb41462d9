import { SdkError } from '../errors.js';
import { type Gate, openGate } from './gate.js';
import type { AdapterOptions } from './options.js';
import { callIdOf, copyWith } from './tool.js';

/** A `StructuredTool` of `@langchain/core`, such as a `DynamicStructuredTool` or a result of `tool()`. */
export interface AnyLangChainTool {
  name: string;
  /** Runs the tool through its `_call`, as LangChain's other methods do. */
  invoke(input: never, config?: never): Promise<unknown>;
}

interface RunConfig {
  signal?: AbortSignal;
  toolCall?: { id?: string };
}

type Call = (input: unknown, manager?: unknown, config?: RunConfig) => unknown;

/**
 * Copies a LangChain tool so that every call is admitted first. Give the agent the copy, not the
 * original. The hash covers the arguments that the tool's schema returns. A call without an admission
 * throws `SdkError`, like a LangChain tool that fails.
 *
 * Throws `SdkError` (`invalid_input`) for an object that is not a `StructuredTool`.
 */
export function admitTool<T extends AnyLangChainTool>(tool: T, options: AdapterOptions | Gate): T {
  const gate = openGate(options, 'langchain');
  const original = Reflect.get(tool, '_call') as Call | undefined;
  if (typeof original !== 'function') {
    throw new SdkError('invalid_input', `${tool.name} is not a StructuredTool`);
  }
  const call: Call = (input, manager, config) =>
    gate.guard<unknown>(
      {
        tool: tool.name,
        arguments: input,
        toolCallId: callIdOf(config?.toolCall?.id),
        context: config,
        signal: config?.signal,
      },
      // Uses the original as `this`, because a copy cannot access private members of its class.
      () => original.call(tool, input, manager, config),
    );
  return copyWith(tool, '_call', call);
}
