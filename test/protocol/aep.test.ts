import { describe, expect, it } from 'vitest';
import { aepBytes, buildAep, buildProofRecord, proofRecordHash } from '#protocol/aep';
import { hashHex } from '#protocol/hash';
import { canonicalBytes, canonicalize, orderedText, parseStrict } from '#protocol/json';
import { type Aep, proofRecordSchema } from '#protocol/schemas/aep';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { canonicalProofEntry, parseEntry } from '#protocol/entries';
import { logEntrySchema } from '#protocol/schemas/log-entry';
import { readAep } from '#protocol/verify';
import { pae, parseEnvelope } from '#protocol/dsse';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { sha256 } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import { admitted, denied, entries } from '../fixtures/worked-log.js';
import fc from 'fast-check';

describe('AEP', () => {
  it('is not signed when a text has no UTF-8 form', () => {
    const aep: Aep = {
      ...admitted.aep,
      subject: { kind: 'execute', intent_id: '\ud800', action: 'A' },
    };
    expect(refusal(() => aepBytes(aep)).code).toBe('lone_surrogate');
  });

  it('has sorted reasons without duplicates', () => {
    const { decision } = buildAep({
      ...admitted.aep,
      valid_until: { proof: null, certificate: null, passport: null, trust: null },
      decision: { effect: 'DENY', reasons: ['b', 'a', 'é', 'b', 'B'] },
    });
    expect(decision.reasons).toEqual(['B', 'a', 'b', 'é']);
  });
});

it('proof record > has canonical JSON bytes for every AEP', () => {
  fc.assert(
    fc.property(anyAep, fc.uint8Array({ minLength: 64, maxLength: 64 }), (aep, signature) => {
      const made = buildProofRecord(sha256, {
        proof_id: aep.proof_id,
        aep: aepBytes(aep),
        signature,
        key_id: aep.key_id,
      });
      expect(proofRecordHash(sha256, made)).toBe(hashHex(sha256, canonicalBytes(made)));
      expect(proofRecordSchema.safeParse(made).success).toBe(true);
    }),
  );
});

/** Texts close to the given one: pieces removed, doubled, exchanged or inserted. */
const near = (text: string): fc.Arbitrary<string> =>
  fc
    .tuple(
      fc.nat(text.length),
      fc.nat(20),
      fc.oneof(
        fc.constantFrom(
          '',
          ' ',
          '"',
          ',',
          '0',
          'f',
          'F',
          'null',
          '\\u0000',
          '\\/',
          '\0',
          '😀',
          '\ufeff',
        ),
        fc.nat(text.length).map((at) => text.slice(at, at + 30)),
        fc.string({ unit: 'binary', maxLength: 3 }),
      ),
    )
    .map(([at, gone, put]) => text.slice(0, at) + put + text.slice(at + gone));

it('buildAep > has its members in canonical order, whatever the order of its input', () => {
  fc.assert(
    fc.property(anyAep, ({ decision, policy, ...aep }) => {
      const { proof } = aep.valid_until;
      const ends = { certificate: null, passport: null, trust: null, ...aep.valid_until, proof };
      const built = buildAep({ ...aep, valid_until: ends, policy, decision });
      expect(built).toEqual({ ...aep, decision, policy });
      expect(orderedText(built)).toBe(canonicalize(built));
    }),
    { numRuns: 500 },
  );
});

describe('readAep', () => {
  it('parses every AEP, and reports whether its bytes are the canonical form', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        expect(readAep(aepBytes(aep))).toEqual({ aep, isCanonical: true });
        const spaced = utf8(JSON.stringify(aep, null, 1));
        expect(readAep(spaced)).toEqual({ aep, isCanonical: false });
      }),
      { numRuns: 300 },
    );
  });

  const changed = (change: object): string =>
    fromUtf8(canonicalBytes({ ...admitted.aep, ...change }));
  const { decision, policy, evidence, subject } = admitted.aep;
  it.each([
    ['an execution of another proof', { execution_id: `exec_${denied.proofId}` }],
    [
      'a proof id that is not a UUIDv7',
      { proof_id: '0'.repeat(32), execution_id: `exec_${'0'.repeat(32)}` },
    ],
    ['reasons out of order', { decision: { ...decision, reasons: ['b', 'a'] } }],
    ['a repeated reason', { decision: { ...decision, reasons: ['a', 'a'] } }],
    ['an empty reason', { decision: { ...decision, reasons: [''] } }],
    ['an admission with the validity of a denial', { valid_until: { proof: null } }],
    ['a denial with the validity of an admission', { decision: { ...decision, effect: 'DENY' } }],
    ['an unknown effect', { decision: { ...decision, effect: 'PERMIT' } }],
    ['an unknown environment', { environment: 'test' }],
    ['an unknown engine', { policy: { ...policy, engine: 'opa' } }],
    ['a hash in upper case', { request_commitment: 'AB'.repeat(32) }],
    ['a short salt', { salt: 'ab' }],
    ['a key id with trailing bits', { key_id: admitted.aep.key_id.slice(0, 42) + 'B' }],
    ['a time without milliseconds', { accepted_at: '2026-02-01T23:00:00Z' }],
    ['an action in lower case', { subject: { ...subject, action: 'go' } }],
    ['a long action', { subject: { ...subject, action: 'A'.repeat(129) } }],
    ['a tenant with a space', { tenant_id: 'a b' }],
    ['a long tenant', { tenant_id: 'a'.repeat(129) }],
    ['a long name', { subject: { ...subject, intent_id: 'a'.repeat(513) } }],
    ['a name with U+0000', { subject: { ...subject, intent_id: 'a\0' } }],
    ['a long reference', { evidence: { ...evidence, fixture_ref: 'a'.repeat(513) } }],
    ['an unsupported version', { schema_version: 'svc.aep/1.0' }],
    ['an unknown member', { zone: 'a' }],
    ['an unknown member of the subject', { subject: { ...subject, zone: 'a' } }],
  ])('rejects %s', (_, change) => {
    expect(readAep(utf8(changed({}))).aep).not.toBeNull();
    expect(readAep(utf8(changed(change))).aep).toBeNull();
  });
});

const general = (text: string) => {
  try {
    const entry = logEntrySchema.parse(parseStrict(Buffer.from(text)));
    return entry.type === 'proof' && fromUtf8(canonicalBytes(entry)) === text ? entry : null;
  } catch {
    return null;
  }
};

it('canonicalProofEntry > returns the same as the general parser for every log entry and for texts that resemble an entry', () => {
  for (const bytes of entries) {
    expect(canonicalProofEntry(fromUtf8(bytes))).toEqual(general(fromUtf8(bytes)));
    expect(parseEntry(bytes)).toEqual(logEntrySchema.parse(parseStrict(bytes)));
  }
  const text = fromUtf8(admitted.entry);
  fc.assert(
    fc.property(near(text), (changed) => {
      expect(canonicalProofEntry(changed)).toEqual(general(changed));
    }),
    { numRuns: 3000 },
  );
});

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
    ['an unknown member', { ...envelope, extra: 1 }],
    ['a short signature', { ...envelope, signatures: [{ ...signature, sig: 'AAAA' }] }],
    ['URL-safe base64', { ...envelope, payload: envelope.payload.slice(0, -4) + '-_-_' }],
    ['the value null', null],
  ])('rejects an envelope with %s', (_, document) => {
    expect(refusal(() => parseEnvelope(document)).code).toBe('malformed_envelope');
  });
});
