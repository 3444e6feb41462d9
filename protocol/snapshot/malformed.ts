import { ProtocolError } from '../errors.js';

/**
 * What every reader of a snapshot throws for bytes that are not what the signed manifest pins: a
 * lookup that ends here has no answer, least of all "not found".
 */
export function malformed(message: string, cause?: unknown): ProtocolError {
  return new ProtocolError(
    'malformed_snapshot',
    message,
    cause === undefined ? undefined : { cause },
  );
}
