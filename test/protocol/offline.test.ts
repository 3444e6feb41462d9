import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { canonicalBytes, canonicalize, parseStrict } from '#protocol/json';
import { publicJwk } from '#protocol/keys';
import { verifyOffline, verifyTlogProof, type OfflineTrust } from '#protocol/offline';
import { nativeCrypto } from '#runtime/crypto/node';
import { alterations } from '../fixtures/altered.js';
import { sha256 } from '../fixtures/leaves.js';
import { admitted, aepKey, exportOf, logVkey, ORIGIN } from '../fixtures/worked-log.js';
import { refusal } from '../fixtures/refusal.js';

const crypto = { ...nativeCrypto, sha256 };
const trust: OfflineTrust = { aepKeys: [aepKey.publicKey], log: { vkey: logVkey, origin: ORIGIN } };
const exported = parseStrict(canonicalBytes(exportOf(admitted)));

/** Only the registry can confirm unsigned members; a disclosure and the proof of the key may be absent. */
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
    // The leaf before the bound counts.
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
  });
});
