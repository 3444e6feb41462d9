import { describe, expect, it } from 'vitest';
import { ProtocolError } from '#protocol/errors';
import { verifyOffline, verifyTlogProof } from '#sdk/index';
import { admitted, aepKey, exportOf, logVkey, ORIGIN } from '../fixtures/worked-log.js';

// The vectors cover what the core accepts and rejects; these tests cover what the SDK adds.
const exported = exportOf(admitted);
const trust = { aepKeys: [aepKey.publicKey], log: { vkey: logVkey, origin: ORIGIN } };

describe('verifyOffline', () => {
  it('returns faults for a document with very long base64', () => {
    const { envelope } = exported;
    for (const [end, code] of [
      ['', 'payload_not_canonical'],
      ['A', 'malformed_base64'],
    ]) {
      const payload = `${'A'.repeat(8_000_000)}${end}`;
      const long = JSON.stringify({ ...exported, envelope: { ...envelope, payload } });
      expect(verifyOffline(long, trust)).toMatchObject({
        authentic: false,
        faults: [{ code, pointer: '/envelope/payload' }],
      });
    }
  });
});

it('verifyTlogProof > throws SdkError with the reason for an unusable pin', () => {
  const log = { vkey: logVkey, origin: '' };
  const cause: unknown = expect.any(ProtocolError);
  const error = { name: 'SdkError', code: 'unusable_pin', pin: 'malformed_origin', cause };
  expect(() => verifyTlogProof('', '', { log })).toThrow(expect.objectContaining(error));
});
