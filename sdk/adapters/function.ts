import { agentEnvelope } from '../engine/admission.js';
import { openGate } from './gate.js';
import type { CallDetails, GateOptions } from './options.js';
import { actionOf } from './tool.js';

/** Options of `admitted`. */
export type AdmittedOptions<A extends unknown[]> = GateOptions & {
  /** Name of the function in the proof. */
  tool: string;
  /** The action: 1 to 128 characters A–Z, 0–9, `_ . : -`; default `actionOf(tool)`. */
  action?: string;
  /**
   * Returns members to add to the envelope of a call. The proof binds the array of all arguments as plain
   * JSON. If some arguments are not plain JSON, such as a context or a signal, return `hashed` to bind in
   * place of the array.
   */
  describe?: (...args: A) => CallDetails;
  /** Returns the abort signal among the arguments. If it fires before the function runs, the function does not run. */
  signal?: (...args: A) => AbortSignal | undefined;
};

/**
 * Wraps a function so that every call is admitted before it runs. The engine gets a hash of the
 * arguments. In the mode `enforce` the function runs only after an admission, and the wrapper
 * records its outcome. Results, errors, `this` and arguments pass through unchanged. For a
 * generator or a ReadableStream the outcome is recorded at its end.
 *
 * Throws `SdkError` (`invalid_input`) at once for invalid options. If the function did not run, the wrapper
 * throws an `SdkError` with the `tool`; the wrapper throws no other errors of its own.
 */
export function admitted<T, A extends unknown[], R>(
  fn: (this: T, ...args: A) => R,
  options: AdmittedOptions<A>,
): (this: T, ...args: A) => Promise<Awaited<R>> {
  const { tool, action, describe, signal, ...rest } = options;
  const gate = openGate({
    ...rest,
    ...(describe !== undefined && { describe: (call) => describe(...(call.arguments as A)) }),
  });
  requireNames(options);
  const wrapper = function (this: T, ...args: A): Promise<Awaited<R>> {
    let chosen: { signal: AbortSignal | undefined } | undefined;
    const call = {
      ...{ tool, action, arguments: args },
      // A getter, because the gate turns its errors into errors of the call. Calls `signal` once, because the
      // function may return a new signal each time.
      get signal() {
        chosen ??= { signal: signal?.(...args) };
        return chosen.signal;
      },
    };
    return gate.guard<R>(call, () => Reflect.apply<T, A, R>(fn, this, args));
  };
  return Object.defineProperty(wrapper, 'name', { value: fn.name });
}

/** Rejects a name that no envelope can contain when a function is wrapped, not when it is called. */
function requireNames<A extends unknown[]>(options: AdmittedOptions<A>): void {
  const { engine, agent, tool, describe } = options;
  // 'ANY' with `describe`, which may choose the action of a call.
  const { action = describe === undefined ? actionOf(tool) : 'ANY' } = options;
  agentEnvelope(engine.tenantId, { kind: 'admission', agent, action, tool });
}
