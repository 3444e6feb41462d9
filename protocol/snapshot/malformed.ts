import { ProtocolError } from '../errors.js';

/**
 * The error of every reader for bytes that differ from those that the log commits to. A
 * lookup then has no result, and must not return "not found".
 */
export const malformed = (message: string, cause?: unknown): ProtocolError =>
  new ProtocolError('malformed_snapshot', message, { cause });
