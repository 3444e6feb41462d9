import { openGate } from './gate.js';
import type { GateOptions } from './options.js';

/** What the wrapper of one function takes. */
export type AdmittedOptions<A extends unknown[]> = GateOptions & {
  /** Its name, as it stands in the proof. */
  tool: string;
  /** Of 1 to 128 characters A–Z, 0–9, `_ . : -`; `actionOf(tool)` where absent. */
  action?: string;
  /**
   * What of a call's arguments is bound by the proof, as plain JSON: the array of all of them where
   * absent. To be given when some of them are no data, as a context or a signal is not.
   */
  hashed?: (...args: A) => unknown;
  /** The signal among the arguments: when it fires before the tool runs, it does not run. */
  signal?: (...args: A) => AbortSignal | undefined;
};

/**
 * A function that is admitted before it runs, each time. Its arguments stay here; their hash is
 * what is asked with. In the mode `enforce` it runs only when the engine said yes, and afterwards
 * what became of it is recorded; its own result or error comes through as it is, with `this` and all
 * arguments. A result that is an async generator or a ReadableStream is followed to its end.
 *
 * Throws `SdkError` (`invalid_input`) at once for options that are wrong. The function it returns
 * rejects with `NotAdmittedError` when the tool did not run, and with nothing else of its own.
 */
export function admitted<T, A extends unknown[], R>(
  fn: (this: T, ...args: A) => R,
  options: AdmittedOptions<A>,
): (this: T, ...args: A) => Promise<Awaited<R>> {
  const { tool, action, hashed = (...args: A) => args, signal, ...rest } = options;
  const gate = openGate({ ...rest, ...(action !== undefined && { action: () => action }) });
  const wrapper = function (this: T, ...args: A): Promise<Awaited<R>> {
    return gate.call<R>({
      tool,
      args: () => hashed(...args),
      signal: signal?.(...args),
      run: () => Reflect.apply<T, A, R>(fn, this, args),
    });
  };
  return Object.defineProperty(wrapper, 'name', { value: fn.name });
}
