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
import type { VerifyCrypto } from '#protocol/verify';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { offlineVectors } from '../fixtures/offline-vectors/index.js';
import { sealed } from '../fixtures/offline-vectors/sealed.js';
import { outcomeOf, type OfflineApi } from '../fixtures/offline-vectors/vector.js';
import { admitted, denied, exportOf } from '../fixtures/worked-log.js';

const folder = new URL('../../protocol/vectors/', import.meta.url).pathname;
const all = Object.values(offlineVectors).flat();
const refused = all.filter((vector) => !offlineVectors['valid/offline']!.includes(vector));

const apiOf = (crypto: VerifyCrypto): OfflineApi => ({
  verifyOffline: (exported, trust, options) => verifyOffline(exported, trust, crypto, options),
  verifyTlogProof: (tlogProof, entry, trust) => verifyTlogProof(tlogProof, entry, trust, crypto),
  pinErrorOf: (error) => {
    if (error instanceof ProtocolError) return error.code;
    throw error;
  },
});

const implementations = [
  ['OpenSSL', apiOf({ sha256: nativeSha256, verify: nativeVerify })],
  ['noble', apiOf({ sha256: nobleSha256, verify: nobleVerify })],
] as const;

describe('offline verification vectors', () => {
  it.each(Object.entries(offlineVectors))('reproduce %s.json', async (file, made) => {
    await expect(`${JSON.stringify(made, null, 2)}\n`).toMatchFileSnapshot(`${folder}${file}.json`);
  });

  describe.each(implementations)('by %s', (_, api) => {
    it.each(all)('$name', (vector) => {
      expect(outcomeOf(vector, api)).toEqual(vector.expected);
    });
  });

  it('have a unique name and a sentence each', () => {
    expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
    for (const { name, about } of all) {
      expect(name).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*$/);
      expect(about).toMatch(/^[^\s].+\.$/);
    }
  });

  it('cover every fault, every cause and every unusable pin', () => {
    const found = (member: string) =>
      new Set(refused.map(({ expected }) => (expected as Record<string, unknown>)[member]));
    expect(found('fault')).toEqual(new Set([undefined, ...OFFLINE_FAULTS]));
    expect(found('undecidable')).toEqual(new Set([undefined, ...UNDECIDABLE_CAUSES]));
    expect(found('error')).toEqual(new Set([undefined, ...PIN_ERRORS]));
  });

  it('have documented codes only', () => {
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
    expect(refused.length).toBeGreaterThan(150);
  });

  it('differ from valid ones only by their defect if they are invalid', () => {
    // Sealing without a change reproduces the genuine export.
    expect(sealed({})).toEqual(exportOf(admitted));
    expect(sealed({ aep: denied.aep, signature: denied.signature }).proof_record).toEqual(
      denied.record,
    );
  });
});
