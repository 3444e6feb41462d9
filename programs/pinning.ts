import { ProtocolError } from '#protocol/errors';
import { OperatorError } from '#runtime/process/operator-error';

/** Does what pins the keys of these variables: keys that cannot be pinned are the operator's to mend. */
export function pinning<T>(variables: string, pin: () => T): T {
  try {
    return pin();
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    throw new OperatorError(`${variables} cannot be used: ${cause.message}`, { cause });
  }
}
