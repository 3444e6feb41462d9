import { nobleVerify } from '../protocol/ed25519.js';
import { ProtocolError } from '../protocol/errors.js';
import { nobleSha256 } from '../protocol/hash.js';
import { p256Verify } from '../protocol/p256.js';
import { PIN_ERRORS } from '../protocol/offline.js';
import { SdkError } from './errors.js';

/** JavaScript implementations, so that Node and every browser run the same code. */
export const crypto = { sha256: nobleSha256, verify: nobleVerify, verifyP256: p256Verify };

/** Turns the ProtocolError of an unusable pin into the SdkError `unusable_pin`. */
export function withPins<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    const pin = PIN_ERRORS.find((code) => error instanceof ProtocolError && error.code === code);
    if (pin === undefined) throw error;
    throw new SdkError('unusable_pin', (error as ProtocolError).message, { pin, cause: error });
  }
}
