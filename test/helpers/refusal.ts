import { ProtocolError } from '#protocol/errors';

/** The ProtocolError that a call throws; fails when it returns, or throws anything else. */
export function refusal(call: () => unknown): ProtocolError {
  try {
    call();
  } catch (error) {
    if (error instanceof ProtocolError) return error;
    throw error;
  }
  throw new Error('expected a ProtocolError, but the call returned');
}
