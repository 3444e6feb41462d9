import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { keyEntryBytes, parseEntry } from '#protocol/entries';
import { nobleSha256 } from '#protocol/hash';
import { keyStateAt, type KeyedEntry, jwkThumbprint } from '#protocol/keys';
import type { AepKeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys } from '#protocol/snapshot/keys';
import { admitted, testKey } from '../fixtures/worked-log.js';

const key = testKey(0);
const other = testKey(1);

function change(
  leafIndex: number,
  kind: 'activate' | 'retire' | 'compromise',
  fromIndex?: number,
  of = key,
): KeyedEntry {
  const bytes = keyEntryBytes({
    key_id: of.keyId,
    public_key: toBase64Url(of.publicKey),
    change: kind,
    ...(fromIndex === undefined ? {} : { from_index: fromIndex }),
    time: '2026-11-20T17:29:00.123Z',
  });
  return { leafIndex, entry: parseEntry(bytes) };
}

describe('keyStateAt', () => {
  it.each<[what: string, entries: KeyedEntry[], states: string, logSize?: number]>([
    [
      'active from the activation until the retirement',
      [change(1, 'activate'), change(4, 'retire')],
      'unknown unknown active active active retired retired',
    ],
    [
      'never active after a retirement',
      [change(0, 'activate'), change(2, 'retire'), change(3, 'activate')],
      'unknown active active retired retired retired',
    ],
    [
      'never active after a compromise',
      [change(0, 'activate'), change(2, 'compromise', 1), change(3, 'activate')],
      'unknown compromised compromised compromised compromised',
    ],
    [
      'compromised from the named index on, even before the compromise was logged',
      [change(0, 'activate'), change(9, 'compromise', 3)],
      'unknown active active compromised compromised',
      10,
    ],
    [
      'not compromised in a log without the compromise entry',
      [change(0, 'activate'), change(9, 'compromise', 3)],
      'unknown active active active active',
      9,
    ],
    [
      'compromised from the earliest of several compromises',
      [change(0, 'activate'), change(5, 'compromise', 4), change(6, 'compromise', 2)],
      'unknown active compromised compromised compromised compromised',
      7,
    ],
    [
      'compromised even when the key was retired earlier',
      [change(0, 'activate'), change(2, 'retire'), change(4, 'compromise', 3)],
      'unknown active active compromised compromised',
    ],
  ])('returns %s', (_, entries, states, logSize) => {
    const expected = states.split(' ');
    const found = expected.map(
      (_, i) => keyStateAt(entries, key.keyId, i, logSize ?? expected.length).state,
    );
    expect(found).toEqual(expected);
  });

  it('returns the public key of the requested key only', () => {
    const entries = [change(0, 'activate', undefined, other), change(1, 'activate')];
    expect(keyStateAt(entries, key.keyId, 2, 2)).toEqual({
      publicKey: key.publicKey,
      state: 'active',
    });
    expect(keyStateAt(entries, other.keyId, 1, 2)).toEqual({
      publicKey: other.publicKey,
      state: 'active',
    });
    expect(keyStateAt([], key.keyId, 0, 0)).toEqual({ publicKey: null, state: 'unknown' });
    const noKey = [{ leafIndex: 0, entry: parseEntry(admitted.entry) }];
    expect(keyStateAt(noKey, key.keyId, 1, 1).state).toBe('unknown');
  });
});

const publicKeys = [1, 2].map((seed) => new Uint8Array(32).fill(seed));
const entryArbitrary = fc
  .record({
    key: fc.constantFrom(...publicKeys),
    change: fc.constantFrom('activate' as const, 'retire' as const, 'compromise' as const),
    from: fc.nat(12),
  })
  .map(({ key, change, from }): AepKeyEntry => ({
    schema_version: 'svc.registry.entry/1.1',
    type: 'key',
    use: 'aep',
    key_id: jwkThumbprint(nobleSha256, key),
    public_key: toBase64Url(key),
    change,
    ...(change === 'compromise' ? { from_index: from } : {}),
    time: '2026-01-01T00:00:00.000Z',
  }));

it('published list of keys > agrees with keyStateAt at every log position, for any order of entries', () => {
  fc.assert(
    fc.property(fc.array(entryArbitrary, { maxLength: 8 }), (entries) => {
      const log = entries.map((entry, leafIndex) => ({ leafIndex, entry }));
      const published = aepKeys(nobleSha256, log);
      for (const publicKey of publicKeys) {
        const keyId = jwkThumbprint(nobleSha256, publicKey);
        const key = published.find(({ kid }) => kid === keyId);
        for (let index = 0; index <= 13; index += 1) {
          const counts =
            key !== undefined &&
            key.activated_at < index &&
            (key.retired_at === null || index < key.retired_at) &&
            (key.compromised_from === null || index < key.compromised_from);
          expect(counts).toBe(keyStateAt(log, keyId, index, 100).state === 'active');
        }
      }
    }),
  );
});
