import { expect } from 'vitest';
import { SdkError, type SdkErrorCode } from '#sdk/errors';

/** The error that a call ends with, which must be of this code. */
export async function sdkError(call: Promise<unknown>, code: SdkErrorCode): Promise<SdkError> {
  const outcome: unknown = await call.then(
    (value) => ({ resolved: value }),
    (error: unknown) => error,
  );
  if (!(outcome instanceof SdkError)) {
    throw new Error('expected an SdkError', { cause: outcome });
  }
  expect(outcome.code, outcome.message).toBe(code);
  return outcome;
}
