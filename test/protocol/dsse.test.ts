import { describe, expect, it } from 'vitest';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { pae, parseEnvelope } from '#protocol/dsse';
import { refusal } from '../fixtures/refusal.js';
import { admitted } from '../fixtures/worked-log.js';

describe('DSSE', () => {
  it('reproduces the example of its specification', () => {
    const encoded = pae('http://example.com/HelloWorld', utf8('hello world'));
    expect(fromUtf8(encoded)).toBe('DSSEv1 29 http://example.com/HelloWorld 11 hello world');
  });

  it('counts bytes, not characters, in the signed text', () => {
    expect(fromUtf8(pae('é', utf8('✈')))).toBe('DSSEv1 2 é 3 ✈');
    expect(fromUtf8(pae('', new Uint8Array(0)))).toBe('DSSEv1 0  0 ');
  });

  const { envelope } = admitted.record;
  const [signature] = envelope.signatures;
  it.each([
    ['another payload type', { ...envelope, payloadType: 'application/json' }],
    ['no signature', { ...envelope, signatures: [] }],
    ['two signatures', { ...envelope, signatures: [signature, signature] }],
    ['a further member', { ...envelope, extra: 1 }],
    ['a short signature', { ...envelope, signatures: [{ ...signature, sig: 'AAAA' }] }],
    ['URL-safe base64', { ...envelope, payload: envelope.payload.slice(0, -4) + '-_-_' }],
    ['the value null', null],
  ])('rejects an envelope with %s', (_, document) => {
    expect(refusal(() => parseEnvelope(document)).code).toBe('malformed_envelope');
  });
});
