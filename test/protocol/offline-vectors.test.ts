import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { nobleVerify } from '#protocol/ed25519';
import { ProtocolError } from '#protocol/errors';
import { nobleSha256 } from '#protocol/hash';
import {
  OFFLINE_FAULTS,
  PIN_ERRORS,
  UNDECIDABLE_CAUSES,
  verifyOffline,
  verifyTlogProof,
} from '#protocol/offline';
import { p256Verify } from '#protocol/p256';
import type { ProofCrypto } from '#protocol/verify';
import { nativeCrypto } from '#runtime/crypto/node';
import { bulkVerification } from '#runtime/crypto/sodium';
import { offlineVectors } from '../fixtures/offline-vectors/published.js';
import { outcomeOf, type OfflineApi } from '../fixtures/offline-vectors/vector.js';

const all = Object.values(offlineVectors).flat();
const refused = all.filter((vector) => !offlineVectors['valid/offline.json']!.includes(vector));

const apiOf = (crypto: ProofCrypto): OfflineApi => ({
  verifyOffline: (exported, trust, options) => verifyOffline(exported, trust, crypto, options),
  verifyTlogProof: (tlogProof, entry, trust) => verifyTlogProof(tlogProof, entry, trust, crypto),
  pinErrorOf: (error) => {
    if (error instanceof ProtocolError) return error.code;
    throw error;
  },
});

const libsodium = await bulkVerification();
const implementations = [
  ['OpenSSL', apiOf(nativeCrypto)],
  ['noble', apiOf({ sha256: nobleSha256, verify: nobleVerify, verifyP256: p256Verify })],
  ['libsodium', apiOf({ ...nativeCrypto, verify: libsodium.verify })],
] as const;

describe('offline verification vectors', () => {
  describe.each(implementations)('verified by %s', (_, api) => {
    it.each(all)('give the expected result: $name', (vector) => {
      expect(outcomeOf(vector, api)).toEqual(vector.expected);
    });
  });

  it('cover every fault, every cause and every unusable pin, and each is documented', () => {
    const found = (member: string) =>
      new Set(refused.map(({ expected }) => (expected as Record<string, unknown>)[member]));
    expect(found('fault')).toEqual(new Set([undefined, ...OFFLINE_FAULTS]));
    expect(found('undecidable')).toEqual(new Set([undefined, ...UNDECIDABLE_CAUSES]));
    expect(found('error')).toEqual(new Set([undefined, ...PIN_ERRORS]));
    const page = ['encoding', 'log']
      .map((name) => readFileSync(new URL(`../../spec/${name}.md`, import.meta.url), 'utf8'))
      .join('\n');
    for (const code of [...OFFLINE_FAULTS, ...UNDECIDABLE_CAUSES, ...PIN_ERRORS]) {
      expect(page).toContain(`\`${code}\``);
    }
  });

  it('report no rejected vector as authentic and included', () => {
    for (const { expected, name } of refused) {
      const { included = false } = expected as { included?: boolean };
      expect(included, name).toBe(false);
    }
    expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
    expect(refused.length).toBeGreaterThan(150);
  });
});
