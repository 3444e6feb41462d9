import { describe, expect, it } from 'vitest';
import { KeyHistory } from '#fsck/registry/context';
import { toBase64Url } from '#protocol/bytes';
import { smallOrderPublicKeys } from '#protocol/ed25519';
import { entryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { testKey } from '../fixtures/worked-log.js';

const [key, other] = [testKey(0), testKey(1)].map(({ publicKey }) => ({
  type: 'key' as const,
  use: 'aep' as const,
  key_id: jwkThumbprint(nativeSha256, publicKey),
  public_key: toBase64Url(publicKey),
}));
const weak = smallOrderPublicKeys()[0]!;
const time = '2026-11-20T17:29:00.000Z';
const activated = { ...key!, change: 'activate', time } as const;
const retired = { ...activated, change: 'retire' } as const;
const compromised = { ...activated, change: 'compromise' } as const;

/** The findings on a log of only these key entries. */
function faultsOf(entries: readonly Parameters<typeof entryBytes>[0][]): string[] {
  const rows = entries.map((entry, leafIndex) => ({ leafIndex, body: entryBytes(entry) }));
  const faults: string[] = [];
  KeyHistory.read(rows, rows.length).checkChain((...found) => faults.push(found.join(' ')));
  return faults;
}

describe('key history of a log', () => {
  it('is accepted in the form that the programs write', () => {
    const entries = [activated, { ...activated, ...other! }, retired];
    expect(faultsOf([...entries, { ...compromised, from_index: 3 }])).toEqual([]);
  });

  it.each<[string, Parameters<typeof entryBytes>[0][], RegExp]>([
    ['the id of another key', [{ ...activated, key_id: other!.key_id }], /thumbprint/],
    [
      'a key of small order',
      [{ ...activated, public_key: toBase64Url(weak), key_id: jwkThumbprint(nativeSha256, weak) }],
      /small order/,
    ],
    ['a second activation', [activated, activated], /activated only once/],
    ['a retirement before the activation', [retired], /before it is retired/],
    [
      'a compromise of leaves after its own',
      [activated, { ...compromised, from_index: 2 }],
      /from_index of at most 1,/,
    ],
  ])('is rejected with %s', (_, entries, fault) => {
    expect(faultsOf(entries)).toEqual([expect.stringMatching(fault)]);
  });
});
