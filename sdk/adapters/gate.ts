import { attempt } from '../../protocol/errors.js';
import type { AgentEnvelope, AgentReceipt } from '../../protocol/schemas/admission.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { admitHttp, agentEnvelope, type Admitted, type Receipt } from '../engine/admission.js';
import { waitForApproval } from '../engine/approvals.js';
import { receiptEvidenceOf } from '../engine/receipt-evidence.js';
import { SdkError } from '../errors.js';
import { type EngineOptions, invalidInput, withoutUndefined } from '../options.js';
import { openBreaker } from './breaker.js';
import {
  type AdapterOptions,
  type Admission,
  type GatedCall,
  type Outcome,
  requireOptions,
} from './options.js';
import { openRounds } from './rounds.js';
import { followStream, isStream, plainHash, resultHash } from './stream.js';
import { actionOf, notAdmitted } from './tool.js';

/** Admits calls of tools, and records their outcomes, for every adapter. */
export interface Gate {
  readonly mode: 'enforce' | 'observe';
  /**
   * Resolves after an `ADMITTED` receipt for this call. Throws `SdkError` with the `tool` otherwise,
   * also in the mode `observe`.
   */
  begin(call: GatedCall): Promise<Admission>;
  /**
   * Records the outcome of an admitted call. Never rejects: `onOutcomeError` gets a failure. Resolves
   * at once with the option `waitUntil`.
   */
  end(admission: Admission, outcome: Outcome): Promise<void>;
  /**
   * Begins the call, runs the tool, and ends the call. If the result is a generator or a ReadableStream,
   * the call ends with the stream. In the mode `observe` the tool runs at once, with null in place of the
   * admission.
   *
   * @param outcomeOf derives the outcome from a result; default: a success
   */
  guard<R>(
    call: GatedCall,
    tool: (admission: Admission | null) => R | PromiseLike<R>,
    outcomeOf?: OutcomeOf<R>,
  ): Promise<Awaited<R>>;
}

/**
 * Null: the outcome is not known and not recorded. `next_round`: the call has not ended; an equal call
 * with `continues` set uses the admission of this call.
 */
export type CallOutcome = Outcome | null | 'next_round';

/** Derives the outcome from a result; returns a promise for a call that ends later than its result. */
export type OutcomeOf<R> = (result: Awaited<R>) => CallOutcome | Promise<Outcome>;

/**
 * Creates a gate from options, or returns the given gate. Throws `SdkError` (`invalid_input`) for options
 * with which every call would fail.
 *
 * @param framework default of `agent.framework`
 */
export function openGate(given: AdapterOptions | Gate, framework?: string): Gate {
  if ('guard' in given) return given;
  const agent = { ...(framework !== undefined && { framework }), ...given.agent };
  const options = { ...given, agent };
  requireOptions(options);
  const breaker = openBreaker(options.breakerMs ?? 0);
  const rounds = openRounds();
  /**
   * Number of requests without a response, limited because in the mode `observe` it would grow while the engine hangs.
   */
  let unanswered = 0;

  const gate: Gate = {
    mode: options.mode ?? 'enforce',
    begin: async (call) => {
      const begun = await begin(call);
      try {
        requireUnchanged(begun, call);
      } catch (error) {
        await gate.end(begun.admission, { result: 'failed' });
        throw error;
      }
      return begun.admission;
    },
    end: async (admission, outcome) => {
      const recorded = recordOutcome(options, admission, outcome);
      if (options.waitUntil === undefined) return recorded;
      notify(options.waitUntil, recorded);
    },
    guard,
  };
  return gate;

  async function begin(call: GatedCall): Promise<Begun> {
    try {
      const planned = planCall(options, call);
      if (gate.mode === 'observe') requireRoom(planned, call);
      const admission = await counted(decide(planned, call));
      notify(options.onAdmitted, admission);
      return { admission, fingerprint: planned.fingerprint };
    } catch (error) {
      notify(options.onNotAdmitted, error as SdkError);
      throw error;
    }
  }

  /** The admission of an earlier request of the same call, for which `outcomeOf` returned `next_round`. */
  function resume(call: GatedCall): Begun | undefined {
    if (call.continues !== true) return undefined;
    const fingerprint = attempt(() => planCall(options, call).fingerprint);
    const admission = fingerprint === undefined ? undefined : rounds.take(fingerprint);
    return admission === undefined ? undefined : { admission, fingerprint: fingerprint! };
  }

  async function guard<R>(
    call: GatedCall,
    tool: (admission: Admission | null) => R | PromiseLike<R>,
    outcomeOf: OutcomeOf<R> = success,
  ): Promise<Awaited<R>> {
    if (gate.mode === 'observe') return observe(call, tool, outcomeOf);
    const begun = resume(call) ?? (await begin(call));
    const { admission } = begun;
    return runTool(
      () => {
        requireUnchanged(begun, call);
        return tool(admission);
      },
      (result) => {
        const outcome = outcomeOf(result);
        if (outcome === 'next_round') rounds.keep(begun.fingerprint, admission);
        return outcome;
      },
      (outcome) => gate.end(admission, outcome),
      () => {
        // Takes the fingerprint again: the tool may have changed its arguments before it returned the generator.
        const fingerprint = attempt(() => planCall(options, call).fingerprint) ?? '';
        return () => requireUnchanged({ admission, fingerprint }, call);
      },
    );
  }

  /**
   * Runs the tool without waiting for the decision. The caller gets the result without waiting for the
   * record of the outcome.
   */
  function observe<R>(
    call: GatedCall,
    tool: (admission: null) => R | PromiseLike<R>,
    outcomeOf: OutcomeOf<R>,
  ): Promise<Awaited<R>> {
    // Requests the admission before the tool runs, because the tool may change its arguments.
    const admitted = begin({ ...call, signal: undefined }).then(
      ({ admission }) => admission,
      () => null,
    );
    const run = () => tool(null);
    return runTool(run, outcomeOf, (outcome) => {
      const recorded = admitted.then((admission) =>
        admission === null ? undefined : counted(recordOutcome(options, admission, outcome)),
      );
      notify(options.waitUntil, recorded);
      return Promise.resolve();
    });
  }

  function requireRoom({ action }: PlannedCall, { tool }: GatedCall): void {
    if (unanswered < MAX_UNANSWERED) return;
    const message = `${String(MAX_UNANSWERED)} requests of the gate already wait for the engine`;
    throw notAdmitted(new SdkError('unavailable', message), { tool, action });
  }

  function counted<T>(request: Promise<T>): Promise<T> {
    unanswered += 1;
    return request.finally(() => {
      unanswered -= 1;
    });
  }

  /**
   * Throws if the caller aborted, or changed the arguments, during the admission. Runs in the same task
   * as the start of the tool, so that nothing can change them in between.
   */
  function requireUnchanged({ admission, fingerprint }: Begun, call: GatedCall): void {
    const { tool, action, proofId } = admission;
    const isUnchanged = attempt(() => planCall(options, call).fingerprint) === fingerprint;
    if (isUnchanged && call.signal?.aborted !== true) return;
    const reason = isUnchanged
      ? new SdkError('aborted', 'aborted')
      : new SdkError('arguments_changed', 'its arguments or facts changed after the request');
    const error = notAdmitted(reason, { tool, action, proofId });
    notify(options.onNotAdmitted, error);
    throw error;
  }

  async function decide(planned: PlannedCall, call: GatedCall): Promise<Admission> {
    const { action, envelope, run } = planned;
    const { tool } = call;
    const { engine, decisionTimeoutMs: timeoutMs } = options;
    const signals = [engine.signal, call.signal].filter((signal) => signal !== undefined);
    const abortable = {
      ...engine,
      ...(signals.length > 0 && { signal: AbortSignal.any(signals) }),
    };
    const limited = { ...abortable, ...(timeoutMs !== undefined && { timeoutMs }) };
    const send = (one: AgentEnvelope) => admitHttp(limited, one);
    try {
      const isObserved = gate.mode === 'observe';
      const receipt = await breaker(
        () => run?.send(envelope, send, isObserved) ?? send(envelope),
      ).catch((error: unknown) => secondDecision(abortable, planned, call, error));
      notify(options.waitUntil, evidenceSettled(receipt));
      const proofId = receipt.registry_proof_id;
      return { tool, action, proofId, receipt, ...(run !== undefined && { run }) };
    } catch (cause) {
      throw notAdmitted(cause, { tool, action });
    }
  }

  /** Waits for a required approval, if the options have `approval`. Throws any other error again. */
  async function secondDecision(
    engine: EngineOptions,
    { action }: PlannedCall,
    call: GatedCall,
    error: unknown,
  ): Promise<Admitted<AgentReceipt>> {
    const { approval: wait } = options;
    const approval = error instanceof SdkError ? error.approval : undefined;
    if (wait === undefined || approval === undefined) throw error;
    const proofId = approval.receipt.registry_proof_id;
    notify(wait.onPending, { call, action, proofId, approval });
    try {
      const receipt = await waitForApproval(
        { ...engine, timeoutMs: wait.waitMs },
        approval.receipt,
      );
      if (isAgentReceipt(receipt)) return receipt;
    } catch (later) {
      // Without a second decision, the call fails with `approval_required` of the first decision.
      if (!(later instanceof SdkError) || !later.retryable) throw later;
    }
    throw error;
  }
}

const MAX_UNANSWERED = 256;

const isAgentReceipt = (receipt: Admitted<Receipt>): receipt is Admitted<AgentReceipt> =>
  receipt.schema_version === SCHEMA.agentReceipt;

/**
 * Runs the tool. `onEnd`, which never rejects, gets the outcome before the caller gets the result. The body of a
 * returned generator runs only at its first read, after the callback from `watch`.
 */
async function runTool<R>(
  run: () => R | PromiseLike<R>,
  outcomeOf: OutcomeOf<R>,
  onEnd: (outcome: Outcome) => Promise<void>,
  watch: () => () => void = () => () => undefined,
): Promise<Awaited<R>> {
  let result: Awaited<R>;
  let beforeBody: (() => void) | undefined;
  try {
    const returned = run();
    if (isStream(returned)) beforeBody = watch();
    result = await returned;
    if (isStream(result)) beforeBody ??= watch();
  } catch (error) {
    await onEnd({ result: 'failed' });
    throw error;
  }
  const stream = followStream(result, onEnd, beforeBody);
  if (stream !== null) return stream as Awaited<R>;
  const outcome = outcomeOf(result);
  if (outcome instanceof Promise) void outcome.then(onEnd);
  else if (outcome !== null && outcome !== 'next_round') await onEnd(outcome);
  return result;
}

export function success(value: unknown): Outcome {
  return { result: 'succeeded', value };
}

/** An admitted call that has not started. */
interface Begun {
  admission: Admission;
  fingerprint: string;
}

interface PlannedCall extends Pick<GatedCall, 'run'> {
  action: string;
  /** The envelope without `run`, which the run adds. It has only the hash of the arguments, not the arguments. */
  envelope: AgentEnvelope;
  /** Hash of tool, action, arguments and facts: a different hash after the admission means a changed call. */
  fingerprint: string;
}

/** Describes and hashes a call. Throws `invalid_input` if no envelope can describe it. */
function planCall(options: AdapterOptions, call: GatedCall): PlannedCall {
  const { tool } = call;
  try {
    const { arguments: given, ...about } = call;
    const described = options.describe?.(call);
    requireSynchronous(described);
    const { hashed, ...details } = { hashed: given, ...about, ...described };
    const arguments_hash = plainHash(hashed);
    const { agent, engine, action: chooseAction = actionOf } = options;
    const { action = chooseAction(tool), facts, run, traceparent } = details;
    const envelope = agentEnvelope(engine.tenantId, {
      kind: 'admission',
      agent,
      action,
      tool,
      arguments_hash,
      ...withoutUndefined({
        facts,
        tool_call_id: details.toolCallId,
        traceparent,
        parent_proof_id: details.parentProofId ?? options.parentProofId,
      }),
    });
    run?.requireOwner(engine.tenantId, agent.id);
    const fingerprint = plainHash({ tool, action, arguments_hash, facts: facts ?? null });
    return { action, envelope, fingerprint, run };
  } catch (cause) {
    throw notAdmitted(cause, { tool: String(tool) }, 'the call cannot be described in a proof: ');
  }
}

/** Rejects a promise: it has no members, so the decision would ignore the facts that it resolves to. */
function requireSynchronous(described: unknown): void {
  if (typeof (described as Partial<Promise<unknown>> | undefined)?.then !== 'function') return;
  Promise.resolve(described).catch(() => undefined);
  throw invalidInput('/describe', '/describe: must not return a promise');
}

const OUTCOME_TIMEOUT_MS = 10_000;

/**
 * Records an outcome. Never rejects: a failed record must not hide the tool's own result. Ignores the
 * caller's signal, because the tool did run.
 */
async function recordOutcome(
  options: AdapterOptions,
  { tool, action, proofId, run }: Admission,
  outcome: Outcome,
): Promise<void> {
  const { engine, agent, outcomeTimeoutMs = OUTCOME_TIMEOUT_MS, onOutcomeError } = options;
  let sent: AgentEnvelope | undefined;
  try {
    const { result, resultHash: hash = resultHash(outcome.value) } = outcome;
    const envelope = agentEnvelope(engine.tenantId, {
      kind: 'outcome',
      agent,
      parent_proof_id: proofId,
      result,
      ...(hash !== undefined && { result_hash: hash }),
    });
    const send = (one: AgentEnvelope) => {
      sent = one;
      return admitHttp({ ...engine, timeoutMs: outcomeTimeoutMs }, one);
    };
    const receipt = await (run?.send(envelope, send) ?? send(envelope));
    notify(options.waitUntil, evidenceSettled(receipt));
  } catch (error) {
    const lost = { tool, action, proofId, error };
    notify(onOutcomeError, sent === undefined ? lost : { ...lost, envelope: sent });
  }
}

/** Resolves when the evidence of a receipt is stored, or `onError` has received the failure. */
const evidenceSettled = (receipt: AgentReceipt): Promise<void> =>
  receiptEvidenceOf(receipt).then(
    () => undefined,
    () => undefined,
  );

/** Calls a callback, whose errors must not replace the tool's result. */
function notify<T>(callback: ((value: T) => unknown) | undefined, value: T): void {
  try {
    Promise.resolve(callback?.(value)).catch(() => undefined);
  } catch {
    // A callback that throws must not fail the call.
  }
}
