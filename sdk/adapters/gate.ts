import { ask, intended, type Intended } from './ask.js';
import { NotAdmittedError } from './not-admitted.js';
import { notify } from './notify.js';
import { requireOptions, type Admission, type AdapterOptions } from './options.js';
import { linkOutcome, type Outcome } from './outcome.js';
import { resultHash } from './plain-json.js';
import { followed } from './stream.js';

/** One call of a tool, as an adapter sees it. */
export interface ToolCall<R> {
  tool: string;
  /** What the tool is about to get: looked at before it is asked for, and again before it runs. */
  args: () => unknown;
  signal?: AbortSignal | undefined;
  /** Runs the tool; without an admission only where it is merely observed. */
  run: (admission: Admission | null) => R | PromiseLike<R>;
  /** What a result says of the tool; null when it is too early to tell. Any result is a success. */
  outcomeOf?: (result: Awaited<R>) => Outcome | null;
}

/** Lets tools run that were admitted, and records what became of them. */
export interface Gate {
  /** The tool's own result or error; `NotAdmittedError` when it did not run. */
  call<R>(call: ToolCall<R>): Promise<Awaited<R>>;
}

/** Throws `SdkError` (`invalid_input`) for options that would fail every call. */
export function openGate(options: AdapterOptions): Gate {
  requireOptions(options);
  return { call: options.mode === 'observe' ? observed : enforced };

  async function enforced<R>(call: ToolCall<R>): Promise<Awaited<R>> {
    let admission: Admission;
    try {
      const asked = intended({ ...call, action: options.action });
      admission = await ask(options, asked, call.signal);
      await requireSame(admission, asked, call);
    } catch (error) {
      if (error instanceof NotAdmittedError) notify(options.onNotAdmitted, error);
      throw error;
    }
    notify(options.onAdmitted, admission);
    const link = (outcome: Outcome) => linkOutcome(options, admission, outcome);
    return carryOut(call, admission, (outcome) => waited(link(outcome)));
  }

  /** The tool does not wait for the decision, and its caller not for the record. */
  function observed<R>(call: ToolCall<R>): Promise<Awaited<R>> {
    const asked = (async () =>
      ask(options, intended({ ...call, action: options.action }), undefined))();
    const admitted = asked.then(
      (admission) => {
        notify(options.onAdmitted, admission);
        return admission;
      },
      (error: NotAdmittedError) => {
        notify(options.onNotAdmitted, error);
        return null;
      },
    );
    return carryOut(call, null, (outcome) => {
      const linked = admitted.then(async (admission) => {
        if (admission !== null) await linkOutcome(options, admission, outcome);
      });
      notify(options.waitUntil, linked);
      return Promise.resolve();
    });
  }

  /** What was asked for is what is carried out, and only while it is still wanted. */
  async function requireSame<R>(
    admission: Admission,
    { argumentsHash }: Intended,
    call: ToolCall<R>,
  ): Promise<void> {
    const { tool, action, proofId } = admission;
    const isSame = unchanged(call.args, argumentsHash);
    if (isSame && call.signal?.aborted !== true) return;
    // Admitted, and not done.
    await waited(linkOutcome(options, admission, { result: 'failed' }));
    throw isSame
      ? new NotAdmittedError('aborted', tool, 'aborted', { action, proofId })
      : new NotAdmittedError(
          'arguments_changed',
          tool,
          'its arguments changed while it was being admitted',
          { action, proofId },
        );
  }

  async function waited(work: Promise<void>): Promise<void> {
    if (options.waitUntil === undefined) return work;
    notify(options.waitUntil, work);
  }
}

/** Runs the tool; `onEnd`, which never rejects, hears of its outcome before its caller does. */
async function carryOut<R>(
  { run, outcomeOf = succeeded }: ToolCall<R>,
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
  const stream = followed(result, onEnd);
  if (stream !== null) return stream as Awaited<R>;
  const outcome = outcomeOf(result);
  if (outcome !== null) await onEnd(outcome);
  return result;
}

function succeeded(result: unknown): Outcome {
  return { result: 'succeeded', resultHash: resultHash(result) };
}

function unchanged(args: () => unknown, hash: string): boolean {
  try {
    return intended({ tool: '', action: () => '', args }).argumentsHash === hash;
  } catch {
    return false;
  }
}
