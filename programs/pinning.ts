import { ProtocolError } from '#protocol/errors';
import { OperatorError } from '#runtime/process/operator-error';

/** Runs `pin`, and reports unusable keys as an operator error that names the variables. */
export function pinning<T>(variables: string, pin: () => T): T {
  try {
    return pin();
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    throw new OperatorError(`${variables} is not usable: ${cause.message}`, { cause });
  }
}
