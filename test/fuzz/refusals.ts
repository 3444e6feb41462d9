import { ApiProblem } from '#api/http/problem';
import { SplitError } from '#api/engine/batches/split';
import { ProtocolError } from '#protocol/errors';
import { ConfigError } from '#runtime/config';
import { ACCEPTED } from './target.js';

/** The code of a refusal that is declared; everything else is thrown on. */
export function refusalOf(error: unknown): string {
  if (
    error instanceof ProtocolError ||
    error instanceof ApiProblem ||
    error instanceof SplitError
  ) {
    return String(error.code);
  }
  if (error instanceof ConfigError) return 'config';
  throw error;
}

/** Parses, and holds what was accepted against `check`, whose own errors are findings. */
export function parsing<T>(
  parse: (input: Uint8Array) => T,
  check: (value: T, input: Uint8Array) => void,
) {
  return (input: Uint8Array): string => {
    let value: T;
    try {
      value = parse(input);
    } catch (error) {
      return refusalOf(error);
    }
    check(value, input);
    return ACCEPTED;
  };
}
