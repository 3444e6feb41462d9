import { concat, fromBase64, utf8 } from './bytes.js';
import { ProtocolError } from './errors.js';
import { dsseEnvelopeSchema } from './schemas/aep.js';

/**
 * DSSE v1 pre-authentication encoding, the bytes that are signed:
 * `"DSSEv1" SP LEN(type) SP type SP LEN(payload) SP payload`, lengths in bytes, as decimal ASCII.
 */
export function pae(payloadType: string, payload: Uint8Array): Uint8Array {
  const head = `DSSEv1 ${utf8(payloadType).length} ${payloadType} ${payload.length} `;
  return concat(utf8(head), payload);
}

/**
 * Parses the envelope of an AEP: exactly one signature, canonical base64, no other member. Anything
 * else is `malformed_envelope`. Does not verify the signature.
 */
export function parseEnvelope(document: unknown) {
  const result = dsseEnvelopeSchema.safeParse(document);
  if (!result.success) {
    throw new ProtocolError('malformed_envelope', 'the document is not a DSSE envelope of an AEP', {
      cause: result.error,
    });
  }
  const [{ keyid, sig }] = result.data.signatures;
  return {
    payloadType: result.data.payloadType,
    payload: fromBase64(result.data.payload),
    keyid,
    /** 64 bytes */
    signature: fromBase64(sig),
  };
}

export type OpenEnvelope = ReturnType<typeof parseEnvelope>;
