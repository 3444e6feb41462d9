import { ProtocolError } from '../errors.js';

/**
 * Thrown by every reader for bytes that differ from those that the signed manifest pins. Such a
 * lookup has no result, least of all "not found".
 */
export function malformed(message: string, cause?: unknown): ProtocolError {
  return new ProtocolError(
    'malformed_snapshot',
    message,
    cause === undefined ? undefined : { cause },
  );
}
