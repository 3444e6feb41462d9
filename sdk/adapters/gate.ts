import { attempt } from '../../protocol/errors.js';
import {
  notify,
  planCall,
  recordOutcome,
  requestAdmission,
  type Outcome,
  type PlannedCall,
} from './admission.js';
import {
  type AdapterOptions,
  type Admission,
  NotAdmittedError,
  requireOptions,
} from './options.js';
import { plainHash, resultHash } from './plain-json.js';
import { followStream } from './stream.js';

/** One call of a tool, as an adapter sees it. */
export interface ToolCall<R> {
  tool: string;
  /** The arguments: read for the admission, and again before the tool runs. */
  args: () => unknown;
  signal?: AbortSignal | undefined;
  /** Runs the tool; with null in the mode `observe`. */
  run: (admission: Admission | null) => R | PromiseLike<R>;
  /** The outcome in a result, null if it is still open. By default every result is a success. */
  outcomeOf?: (result: Awaited<R>) => Outcome | null;
}

/** Runs admitted tools, and records their outcomes. */
export interface Gate {
  /** The tool's own result or error; `NotAdmittedError` if it did not run. */
  call<R>(call: ToolCall<R>): Promise<Awaited<R>>;
}

/** Throws `SdkError` (`invalid_input`) for options that would fail every call. */
export function openGate(options: AdapterOptions): Gate {
  requireOptions(options);
  return { call: options.mode === 'observe' ? observe : enforce };

  async function enforce<R>(call: ToolCall<R>): Promise<Awaited<R>> {
    let admission: Admission;
    try {
      const planned = planCall(call.tool, options.action, call.args);
      admission = await requestAdmission(options, planned, call.signal);
      await requireUnchanged(admission, planned, call);
    } catch (error) {
      if (error instanceof NotAdmittedError) notify(options.onNotAdmitted, error);
      throw error;
    }
    notify(options.onAdmitted, admission);
    return runTool(call, admission, (outcome) => record(admission, outcome));
  }

  /** The tool does not wait for the decision, nor its caller for the record. */
  function observe<R>(call: ToolCall<R>): Promise<Awaited<R>> {
    const request = async (): Promise<Admission | null> => {
      try {
        const planned = planCall(call.tool, options.action, call.args);
        const admission = await requestAdmission(options, planned, undefined);
        notify(options.onAdmitted, admission);
        return admission;
      } catch (error) {
        notify(options.onNotAdmitted, error as NotAdmittedError);
        return null;
      }
    };
    // Before the tool runs, which may change its arguments.
    const admitted = request();
    return runTool(call, null, (outcome) => {
      const recorded = admitted.then((admission) =>
        admission === null ? undefined : recordOutcome(options, admission, outcome),
      );
      notify(options.waitUntil, recorded);
      return Promise.resolve();
    });
  }

  /** The caller may have aborted, or changed the arguments, during the admission. */
  async function requireUnchanged<R>(
    admission: Admission,
    { argumentsHash }: PlannedCall,
    call: ToolCall<R>,
  ): Promise<void> {
    const { tool, action, proofId } = admission;
    const isUnchanged = attempt(() => plainHash(call.args())) === argumentsHash;
    if (isUnchanged && call.signal?.aborted !== true) return;
    await record(admission, { result: 'failed' });
    const [code, reason] = isUnchanged
      ? (['aborted', 'aborted'] as const)
      : (['arguments_changed', 'its arguments changed during the admission'] as const);
    throw new NotAdmittedError(code, tool, reason, { action, proofId });
  }

  async function record(admission: Admission, outcome: Outcome): Promise<void> {
    const recorded = recordOutcome(options, admission, outcome);
    if (options.waitUntil === undefined) return recorded;
    notify(options.waitUntil, recorded);
  }
}

/** Runs the tool. `onEnd`, which never rejects, gets the outcome before the caller gets the result. */
async function runTool<R>(
  { run, outcomeOf = success }: ToolCall<R>,
  admission: Admission | null,
  onEnd: (outcome: Outcome) => Promise<void>,
): Promise<Awaited<R>> {
  let result: Awaited<R>;
  try {
    result = await run(admission);
  } catch (error) {
    await onEnd({ result: 'failed' });
    throw error;
  }
  const stream = followStream(result, onEnd);
  if (stream !== null) return stream as Awaited<R>;
  const outcome = outcomeOf(result);
  if (outcome !== null) await onEnd(outcome);
  return result;
}

function success(result: unknown): Outcome {
  return { result: 'succeeded', resultHash: resultHash(result) };
}
