import { SdkError } from '../errors.js';
import { type Gate, openGate, type OutcomeOf, success } from './gate.js';
import type { AdapterOptions } from './options.js';
import { callIdOf } from './tool.js';

interface ToolOptions {
  id: string;
  execute?: Execute;
}

interface Suspendable {
  suspend?: (...args: unknown[]) => unknown;
  resumeData?: unknown;
}

type Context = Suspendable & {
  abortSignal?: AbortSignal;
  agent?: Suspendable & { toolCallId?: string };
  workflow?: Suspendable;
};

type Execute = (input: unknown, context?: Context) => unknown;

/**
 * Returns a `createTool` function of `@mastra/core` whose tools are admitted before they run. The hash
 * covers the arguments that the tool's schema returns. A call without an admission throws `SdkError`,
 * which Mastra shows to the model as the tool's error. A call that is suspended, and resumed in this
 * process, is one admission.
 *
 * @typeParam F the type of this function
 * @param createTool `createTool` of `@mastra/core/tools`. The returned function throws `SdkError`
 *   (`invalid_input`) for a tool without `execute`, which this adapter cannot stop.
 */
export function admitTool<F extends (options: never) => unknown>(
  createTool: F,
  options: AdapterOptions | Gate,
): F {
  const gate = openGate(options, 'mastra');
  const create = createTool as unknown as (given: ToolOptions) => unknown;
  const admitted = (given: ToolOptions): unknown => {
    const { execute, id } = given;
    if (execute === undefined) throw new SdkError('invalid_input', `${id} has no execute function`);
    const gated: Execute = (input, context = {}) => {
      const { abortSignal: signal, agent, workflow } = context;
      const call = {
        ...{ tool: id, arguments: input, context, signal },
        toolCallId: callIdOf(agent?.toolCallId),
        continues: [context, agent, workflow].some((place) => place?.resumeData !== undefined),
      };
      let isSuspended = false;
      const watch = <S extends Suspendable>(place: S): S => {
        const { suspend } = place;
        if (suspend === undefined) return place;
        return { ...place, suspend: (...args) => ((isSuspended = true), suspend(...args)) };
      };
      const watched = {
        ...watch(context),
        ...(agent !== undefined && { agent: watch(agent) }),
        ...(workflow !== undefined && { workflow: watch(workflow) }),
      };
      const outcomeOf: OutcomeOf<unknown> = (result) =>
        isSuspended ? 'next_round' : success(result);
      return gate.guard<unknown>(call, () => execute(input, watched), outcomeOf);
    };
    return create({ ...given, execute: gated });
  };
  return admitted as unknown as F;
}
