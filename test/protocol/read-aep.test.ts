import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aepBytes } from '#protocol/aep';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { canonicalBytes, parseStrict } from '#protocol/json';
import { canonicalProofEntry, parseEntry } from '#protocol/entries';
import { canonicalAep, parseAep, readAep, type ReadAep } from '#protocol/read-aep';
import { type Aep } from '#protocol/schemas/aep';
import { logEntrySchema } from '#protocol/schemas/log-entry';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { admitted, denied, entries } from '../fixtures/worked-log.js';

/** The result of the general parser. */
function parseGeneral(bytes: Uint8Array): ReadAep {
  try {
    return parseAep(bytes);
  } catch {
    return { aep: null, isCanonical: false };
  }
}

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

const asText = (aep: Aep): string => fromUtf8(aepBytes(aep));

/** The AEP with every JSON-escaped or surrogate character replaced. */
function withoutEscapes(aep: Aep): Aep {
  const text = JSON.stringify(aep).replaceAll(/\\u[0-9a-f]{4}|\\.|[\ud800-\udfff]/g, 'é');
  const plain = JSON.parse(text) as Aep;
  const reasons = [...new Set(plain.decision.reasons)].sort();
  return { ...plain, decision: { ...plain.decision, reasons } };
}

describe('canonicalAep', () => {
  it('equals the general parser for every AEP', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        const bytes = aepBytes(aep);
        expect(readAep(bytes)).toEqual(parseGeneral(bytes));
      }),
      { numRuns: 500 },
    );
  });

  it('equals the general parser for texts that are nearly an AEP', () => {
    fc.assert(
      fc.property(
        anyAep.chain((aep) => near(asText(aep))),
        (text) => {
          const bytes = Buffer.from(text);
          expect(readAep(bytes)).toEqual(parseGeneral(bytes));
        },
      ),
      { numRuns: 3000 },
    );
  });

  it('parses AEPs of both request types on its fast path', () => {
    expect(canonicalAep(asText(admitted.aep))).toEqual(admitted.aep);
    expect(canonicalAep(asText(denied.aep))).toEqual(denied.aep);
    const kinds = new Set<string>();
    fc.assert(
      fc.property(anyAep.map(withoutEscapes), (aep) => {
        kinds.add(aep.subject.kind);
        expect(canonicalAep(asText(aep))).toEqual(aep);
      }),
      { numRuns: 300 },
    );
    expect(kinds).toEqual(new Set(['execute', 'admission', 'outcome']));
  });

  const changed = (change: object): string =>
    fromUtf8(canonicalBytes({ ...admitted.aep, ...change }));
  const { decision, policy, evidence, subject } = admitted.aep;
  it.each([
    ['an execution of another proof', { execution_id: `exec_${denied.proofId}` }],
    [
      'a proof id that is no UUIDv7',
      { proof_id: '0'.repeat(32), execution_id: `exec_${'0'.repeat(32)}` },
    ],
    ['reasons out of order', { decision: { ...decision, reasons: ['b', 'a'] } }],
    ['a reason twice', { decision: { ...decision, reasons: ['a', 'a'] } }],
    ['an empty reason', { decision: { ...decision, reasons: [''] } }],
    ['the ends of a denial', { valid_until: { proof: null } }],
    ['four ends of a denial', { decision: { ...decision, effect: 'DENY' } }],
    ['another effect', { decision: { ...decision, effect: 'PERMIT' } }],
    ['another environment', { environment: 'test' }],
    ['another engine', { policy: { ...policy, engine: 'opa' } }],
    ['a hash in upper case', { request_hash: 'AB'.repeat(32) }],
    ['a short salt', { salt: 'ab' }],
    ['a key id with trailing bits', { key_id: admitted.aep.key_id.slice(0, 42) + 'B' }],
    ['30 February', { accepted_at: '2026-02-30T00:00:00.000Z' }],
    ['24:00', { accepted_at: '2026-02-01T24:00:00.000Z' }],
    ['a time without milliseconds', { accepted_at: '2026-02-01T23:00:00Z' }],
    ['an action in lower case', { subject: { ...subject, action: 'go' } }],
    ['a long action', { subject: { ...subject, action: 'A'.repeat(129) } }],
    ['a tenant with a blank', { tenant_id: 'a b' }],
    ['a long tenant', { tenant_id: 'a'.repeat(129) }],
    ['a long name', { subject: { ...subject, intent_id: 'a'.repeat(513) } }],
    ['a name with U+0000', { subject: { ...subject, intent_id: 'a\0' } }],
    ['a long reference', { evidence: { ...evidence, fixture_ref: 'a'.repeat(513) } }],
    ['another version', { schema_version: 'svc.aep/1.1' }],
    ['a further member', { zone: 'a' }],
    ['a further member of the subject', { subject: { ...subject, zone: 'a' } }],
  ])('rejects %s', (_, change) => {
    expect(canonicalAep(changed({}))).not.toBeNull();
    const text = changed(change);
    expect(canonicalAep(text)).toBeNull();
    expect(readAep(utf8(text)).aep).toBeNull();
  });
});

describe('canonicalProofEntry', () => {
  const general = (text: string) => {
    try {
      const entry = logEntrySchema.parse(parseStrict(Buffer.from(text)));
      return entry.type === 'proof' && fromUtf8(canonicalBytes(entry)) === text ? entry : null;
    } catch {
      return null;
    }
  };

  it('equals the general parser for every log entry and for texts that are nearly an entry', () => {
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
});
