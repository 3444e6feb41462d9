import { fromBase64, utf8 } from './bytes.js';
import { ProtocolError } from './errors.js';
import { dsseEnvelopeSchema } from './schemas/aep.js';

/**
 * DSSE v1 pre-authentication encoding, the bytes that are signed:
 * `"DSSEv1" SP LEN(type) SP type SP LEN(payload) SP payload`, lengths in bytes, as decimal ASCII.
 */
export function pae(payloadType: string, payload: Uint8Array): Uint8Array {
  const head = headOf(payloadType);
  const length = `${payload.length} `;
  const encoding = new Uint8Array(head.length + length.length + payload.length);
  encoding.set(head);
  for (let i = 0; i < length.length; i++) encoding[head.length + i] = length.charCodeAt(i);
  encoding.set(payload, head.length + length.length);
  return encoding;
}

let latest: { payloadType: string; head: Uint8Array } | null = null;

function headOf(payloadType: string): Uint8Array {
  if (latest?.payloadType === payloadType) return latest.head;
  const head = utf8(`DSSEv1 ${utf8(payloadType).length} ${payloadType} `);
  latest = { payloadType, head };
  return head;
}

export interface OpenEnvelope {
  payloadType: string;
  payload: Uint8Array;
  keyid: string;
  /** 64 bytes */
  signature: Uint8Array;
}

/**
 * Parses the envelope of an AEP: exactly one signature, canonical base64, no other member. Anything
 * else is `malformed_envelope`. Does not verify the signature.
 */
export function parseEnvelope(document: unknown): OpenEnvelope {
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
    signature: fromBase64(sig),
  };
}
