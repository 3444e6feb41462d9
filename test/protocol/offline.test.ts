import { runInNewContext } from 'node:vm';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { canonicalBytes, canonicalize, parseStrict } from '#protocol/json';
import { publicJwk } from '#protocol/keys';
import {
  verifyOffline,
  verifyTlogProof,
  type OfflineTrust,
  OFFLINE_FAULTS,
  PIN_ERRORS,
  UNDECIDABLE_CAUSES,
} from '#protocol/offline';
import { nativeCrypto } from '#runtime/crypto/node';
import { nobleVerify } from '#protocol/ed25519';
import { ProtocolError } from '#protocol/errors';
import { nobleSha256 } from '#protocol/hash';
import { p256Verify } from '#protocol/p256';
import type { ProofCrypto } from '#protocol/verify';
import { bulkVerification } from '#runtime/crypto/sodium';
import { alterations } from '../fixtures/altered.js';
import { sha256 } from '../fixtures/leaves.js';
import { admitted, aepKey, exportOf, logVkey, ORIGIN } from '../fixtures/worked-log.js';
import { fullLog } from '../fixtures/full-log.js';
import { refusal } from '../fixtures/refusal.js';
import { offlineVectors } from '../fixtures/offline-vectors/published.js';
import { outcomeOf, type OfflineApi } from '../fixtures/offline-vectors/vector.js';

const crypto = { ...nativeCrypto, sha256 };
const trust: OfflineTrust = { aepKeys: [aepKey.publicKey], log: { vkey: logVkey, origin: ORIGIN } };
const exported = parseStrict(canonicalBytes(exportOf(admitted)));

/** Undetected alterations: of unsigned members, which only the registry can confirm, and of optional parts. */
const UNSIGNED = /^\/(?:verdict|log_vkey|disclosures: without|key\/tlog_proof: null)/;

describe('verifyOffline', () => {
  it('rejects a document in which any one value was altered', () => {
    const altered = [...alterations(exported)].filter(({ what }) => !UNSIGNED.test(what));
    expect(altered.length).toBeGreaterThan(250);
    for (const { what, document } of altered) {
      const result = verifyOffline(document, trust, crypto);
      const isPlace = /^\/(?:inclusion|key|tlog_proof)\b/.test(what);
      expect([what, result]).toMatchObject([
        what,
        { decidable: true, included: false, status: 'unknown', faults: [{}] },
      ]);
      if (!isPlace) expect([what, result]).toMatchObject([what, { authentic: false }]);
    }
  });

  it('reports receipt evidence whose payload is not canonical as malformed', () => {
    const evidence = structuredClone(fullLog.receipt_evidence);
    const { envelope } = evidence.proof_record;
    envelope.payload = Buffer.concat([
      Buffer.from(envelope.payload, 'base64'),
      Buffer.from(' '),
    ]).toString('base64');
    expect(verifyOffline(JSON.stringify(evidence), trust, crypto)).toMatchObject({
      faults: [{ code: 'malformed_export', pointer: '/proof_record/envelope/payload' }],
    });
  });

  it('reports a text in place of the path as malformed, not as base64', () => {
    const { inclusion, ...rest } = exportOf(admitted);
    const document = { ...rest, inclusion: { ...inclusion, path: 'not a list' } };
    expect(verifyOffline(document, trust, crypto)).toMatchObject({
      faults: [{ code: 'malformed_export', pointer: '/inclusion/path' }],
    });
  });

  it('accepts text, bytes from any JavaScript realm, and a parsed value', () => {
    const text = canonicalize(exported);
    const bytes = Buffer.from(text);
    const elsewhere: unknown = runInNewContext('Uint8Array.from(bytes)', { bytes: [...bytes] });
    expect(elsewhere).not.toBeInstanceOf(Uint8Array);
    const result = verifyOffline(exported, trust, crypto);
    expect(result).toMatchObject({ authentic: true, aep: admitted.aep });
    for (const given of [text, bytes, new Uint8Array(bytes), elsewhere]) {
      expect(verifyOffline(given, trust, crypto)).toEqual(result);
    }
    const faulty = verifyOffline(
      text.replace('"leaf_index":1', '"leaf_index":1e400'),
      trust,
      crypto,
    );
    expect(faulty).toMatchObject({
      faults: [{ code: 'integer_out_of_range', pointer: '/inclusion/leaf_index' }],
    });
  });

  it('applies the narrower of two pins for one key', () => {
    const ended = { ...publicJwk(sha256, aepKey.publicKey), retired_at: 1 };
    const aepKeys = [toBase64Url(aepKey.publicKey), ended];
    expect(verifyOffline(exported, { ...trust, aepKeys }, crypto)).toMatchObject({
      authentic: false,
      faults: [{ code: 'key_not_in_force' }],
    });
    // A signature at the leaf before the bound is valid.
    const later = { ...trust, aepKeys: [{ ...ended, retired_at: 2 }] };
    expect(verifyOffline(exported, later, crypto)).toMatchObject({ authentic: true });
  });

  it('returns undecidable for an untyped caller that pins nothing', () => {
    for (const nothing of [{}, { aepKeys: undefined }, { aepKeys: [], log: null }]) {
      expect(verifyOffline(exported, nothing, crypto)).toMatchObject({ cause: 'no_pinned_key' });
      expect(verifyTlogProof('', '', nothing, crypto)).toMatchObject({ cause: 'no_pinned_log' });
    }
    for (const wrong of [aepKey.publicKey, toBase64Url(aepKey.publicKey), null]) {
      const unlisted = { aepKeys: wrong } as unknown as OfflineTrust;
      expect(refusal(() => verifyOffline(exported, unlisted, crypto)).code).toBe('malformed_key');
    }
    for (const wrong of [{ vkey: logVkey, from_size: 7 }, {}, null, 7]) {
      const log = { vkey: wrong, origin: ORIGIN };
      const unlisted = { ...trust, log } as unknown as OfflineTrust;
      expect(refusal(() => verifyOffline(exported, unlisted, crypto)).code).toBe('malformed_vkey');
    }
  });
});

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

  it('cover every fault, every cause and every unusable pin, and the specification has each code', () => {
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

  it('have unique names, and expect inclusion from no invalid vector', () => {
    for (const { expected, name } of refused) {
      const { included = false } = expected as { included?: boolean };
      expect(included, name).toBe(false);
    }
    expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
    expect(refused.length).toBeGreaterThan(150);
  });
});
