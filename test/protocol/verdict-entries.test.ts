import { expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { LISTED_LEAVES, type VerdictEntry } from '#protocol/schemas/log-entry';
import { KeyStates } from '#protocol/state/key-states';
import { isSignedVerdict, listedFailures, verdictMessage } from '#protocol/verdict-entries';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { nextVectors } from '../fixtures/next-vectors.js';

const log = nextVectors.entries.map(({ canonical }, leafIndex) => ({
  leafIndex,
  entry: parseEntry(utf8(canonical)),
}));
const ORIGIN = 'log.example/svc';
const crypto = { sha256: nativeSha256, verify: nativeVerify };
const verdicts = log.flatMap(({ leafIndex, entry }) =>
  entry.type === 'verdict' ? [{ leafIndex, entry }] : [],
);
const isSigned = (entry: VerdictEntry, keys = log, at = 13): boolean =>
  isSignedVerdict(crypto, ORIGIN, entry, new KeyStates({ ...crypto, origins: [ORIGIN] }, keys), at);

it('isSignedVerdict > accepts the vectors, and only under a verifier key that is active', () => {
  const [first, second] = verdicts.map(({ entry }) => entry);
  expect(isSigned(first!) && isSigned(second!, log, 16)).toBe(true);
  expect(isSigned({ ...first!, failed: [] })).toBe(false);
  const keyed = log.findIndex(({ entry }) => 'use' in entry && entry.use === 'verifier');
  expect(isSigned(first!, log, keyed)).toBe(false);
  const activation = log[keyed]!;
  const otherUse = { ...activation, entry: { ...activation.entry, use: 'aep' as const } } as never;
  expect(isSigned(first!, [otherUse, activation])).toBe(false);
  const retirement = { ...activation.entry, change: 'retire' } as never;
  expect(isSigned(first!, [...log, { leafIndex: 12, entry: retirement }])).toBe(false);
  expect(isSigned(first!, [...log, { leafIndex: 13, entry: retirement }])).toBe(true);
});

it('listedFailures > are the failed leaves that were not restored', () => {
  const all = verdicts.map(({ entry }) => entry);
  expect([...listedFailures(all.slice(0, 1))]).toEqual([11]);
  expect([...listedFailures(all)]).toEqual([]);
});

it('verdictMessage > has a length that AWS KMS signs, for the longest list and large indexes', () => {
  const entry = verdicts[0]!.entry;
  const failed = Array.from({ length: LISTED_LEAVES }, (_, i) => 10 ** 13 + i);
  const message = verdictMessage(`${'x'.repeat(200)}/log`, { ...entry, failed });
  expect(message.length).toBeLessThanOrEqual(4096);
});
