import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { concat, fromHex, fromUtf8, toHex } from '#protocol/bytes';
import { canonicalize } from '#protocol/json';
import { ProtocolError } from '#protocol/errors';
import { encodeRecord, recordBody, recordHistory } from '#protocol/snapshot/record';
import { proofIdAt } from '../fixtures/snapshot.js';

const ids = (count: number, seed = 'x'): string[] =>
  Array.from({ length: count }, (_, i) => proofIdAt(1_700_000_000_000 + i, `${seed}${i}`));

const code = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    if (error instanceof ProtocolError) return error.code;
    throw error;
  }
  return 'none';
};

describe('snapshot record with a history', () => {
  const [proof_id, other] = ids(2) as [string, string];
  const id = fromHex(proof_id);
  const texts = { id: proof_id, parts: { proof: 'P', trust: 'Tränen' }, tail: '…}' };
  const plain = encodeRecord(texts);
  const record = encodeRecord({ ...texts, history: '["é"]' });
  const kinds = ['proof', 'certificate', 'passport', 'trust'] as const;
  const bodiesIn = (bytes: Uint8Array, of = id) =>
    kinds.map((kind) => {
      const body = recordBody(bytes, of, kind);
      return body && fromUtf8(body.part) + fromUtf8(body.tail);
    });
  const refused = (bytes: Uint8Array, of = id): void => {
    for (const kind of kinds) {
      expect(code(() => recordBody(bytes, of, kind))).toBe('malformed_snapshot');
    }
    expect(code(() => recordHistory(bytes, of))).toBe('malformed_snapshot');
  };

  it('has bodies equal to those of a record without history', () => {
    expect([plain[0], record[0]]).toEqual([1, 2]);
    expect(bodiesIn(record)).toEqual(['P…}', null, null, 'Tränen…}']);
    expect(bodiesIn(plain)).toEqual(bodiesIn(record));
    expect(fromUtf8(recordHistory(record, id)!)).toBe('["é"]');
    expect(recordHistory(plain, id)).toBeNull();
    expect(recordHistory(encodeRecord({ ...texts, history: '' }), id)).toEqual(new Uint8Array());
  });

  it('is rejected when read under another id', () => {
    refused(record, fromHex(other));
    refused(plain, fromHex(other));
    // A record assembled from two others.
    const theirs = encodeRecord({ ...texts, id: other, history: '["theirs"]' });
    refused(concat(record.subarray(0, 44), theirs.subarray(44)));
    refused(concat(theirs.subarray(0, 44), record.subarray(44)));
  });

  it('is rejected when truncated anywhere or extended', () => {
    for (let length = 0; length < record.length; length++) refused(record.subarray(0, length));
    refused(concat(record, new Uint8Array(1)));
  });

  it('is rejected when any one of its length fields is changed', () => {
    for (const at of [4, 8, 12, 16, 20, 40]) {
      for (const byte of [at, at + 1, at + 3]) {
        for (const [whole, has] of [
          [record, true],
          [plain, at < 40],
        ] as const) {
          if (!has) continue;
          const changed = whole.slice();
          changed[byte]! ^= 1;
          refused(changed);
        }
      }
    }
  });

  it('survives a round trip for any texts', () => {
    const text = fc.string({ unit: 'binary', maxLength: 20 });
    fc.assert(
      fc.property(
        fc.record(
          { proof: text, certificate: text, passport: text, trust: text },
          { requiredKeys: [] },
        ),
        text,
        fc.option(text, { nil: undefined }),
        (parts, tail, history) => {
          const made = encodeRecord({
            id: proof_id,
            parts,
            tail,
            ...(history !== undefined && { history }),
          });
          expect(bodiesIn(made)).toEqual(
            kinds.map((kind) => ((parts[kind] ?? '') === '' ? null : parts[kind] + tail)),
          );
          const found = recordHistory(made, id);
          expect(found && fromUtf8(found)).toBe(history ?? null);
        },
      ),
    );
  });
});

describe('worked example of a snapshot record', () => {
  const texts = {
    id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    parts: { proof: '"a":1,', trust: '"b":"é",' },
    tail: '"c":3}',
  };
  const history = canonicalize([
    { event: 'accepted', at: '2026-11-20T17:29:00.123Z' },
    { event: 'appended', leaf_index: 1 },
    { event: 'verified', at: '2026-11-20T17:29:00.323Z', log_size: 3 },
    {
      event: 'revoked',
      at: '2026-11-21T08:00:00.000Z',
      artifact: 'certificate',
      leaf_index: 3,
      reason_hash: '0ccf312b687d302473f2f43995c88741604f8bda67e158f841245f8a24ebb8ce',
    },
  ]);
  const documented = readFileSync(new URL('../../spec/snapshot.md', import.meta.url), 'utf8');

  it.each([
    ['without a history', texts],
    ['with one', { ...texts, history }],
  ])('for %s equals the output of this code', (_what, record) => {
    const lines = toHex(encodeRecord(record)).match(/.{1,64}/g)!;
    expect(documented.replaceAll('\n', '')).toContain(lines.join(''));
  });

  it('with a history has the documented text', () => {
    expect(documented).toContain(`\n${history}\n`);
  });
});
