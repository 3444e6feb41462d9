import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { buildProofRecord, proofRecordHash } from '#protocol/aep';
import { toBase64Url } from '#protocol/bytes';
import { canonicalBytes, canonicalize } from '#protocol/canonical-json';
import { parseStrict, type JsonValue } from '#protocol/json';
import { publicJwk } from '#protocol/keys';
import { nobleVerify } from '#protocol/ed25519';
import { verifyOffline, verifyTlogProof, type OfflineTrust } from '#protocol/offline';
import { proofExportSchema } from '#protocol/schemas/proof-export';
import { STATUSES } from '#protocol/status';
import { nativeVerify } from '#runtime/crypto/node';
import { sha256 } from '../fixtures/leaves.js';
import {
  admitted,
  aepKey,
  denied,
  exportOf,
  logVkey,
  ORIGIN,
  testKey,
} from '../fixtures/worked-log.js';
import { refusal } from '../fixtures/refusal.js';

const crypto = { sha256, verify: nativeVerify };
const trust: OfflineTrust = { aepKeys: [aepKey.publicKey], log: { vkey: logVkey, origin: ORIGIN } };
const exported = parseStrict(canonicalBytes(exportOf(admitted)));

type Path = (string | number)[];

/** Every scalar of a document, by its path. */
function scalars(value: JsonValue, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, member]) =>
    scalars(member, [...path, Array.isArray(value) ? Number(key) : key]),
  );
}

function withChange(path: Path, change: (value: JsonValue) => JsonValue): JsonValue {
  const copy = structuredClone(exported) as Record<string | number, JsonValue>;
  const parent = path
    .slice(0, -1)
    .reduce<Record<string | number, JsonValue>>(
      (at, key) => at[key] as Record<string | number, JsonValue>,
      copy,
    );
  const key = path.at(-1)!;
  parent[key] = change(parent[key]!);
  return copy;
}

/** Changes that keep the form of the value where possible. */
const changes: ((value: JsonValue) => JsonValue)[] = [
  (value) => {
    if (typeof value === 'number') return value + 1;
    if (value === null) return '2027-01-01T00:00:00.000Z';
    if (typeof value !== 'string') return null;
    const first = value[0] ?? '';
    return (first === 'a' ? 'b' : first === '2' ? '1' : first === 'A' ? 'B' : 'a') + value.slice(1);
  },
  (value) => {
    if (typeof value !== 'string') return 0;
    const middle = Math.floor(value.length / 2);
    return value.slice(0, middle) + (value[middle] === '0' ? '1' : '0') + value.slice(middle + 1);
  },
  (value) => (typeof value === 'string' ? value.slice(0, -1) : -1),
  (value) => (typeof value === 'string' ? `${value}0` : null),
  () => null,
];

/** Unsigned members: only the registry can confirm them. */
const UNSIGNED = new Set(['verdict', 'log_vkey']);

describe('verifyOffline', () => {
  it('reports a genuine export as authentic, included, and of unknown status', () => {
    for (const proof of [admitted, denied]) {
      for (const verify of [nativeVerify, nobleVerify]) {
        const document = exportOf(proof);
        expect(proofExportSchema.parse(document)).toEqual(document);
        const result = verifyOffline(document, trust, { sha256, verify });
        expect(result).toMatchObject({
          decidable: true,
          authentic: true,
          included: true,
          under: { origin: ORIGIN, size: 5 },
          status: 'unknown since checkpoint 5',
          faults: [],
        });
        // Revocation cannot be checked offline.
        for (const status of STATUSES) expect(JSON.stringify(result)).not.toContain(`"${status}"`);
      }
    }
  });

  it('rejects a document with any one value altered', () => {
    const paths = scalars(exported).filter(([name]) => !UNSIGNED.has(String(name)));
    expect(paths.length).toBeGreaterThanOrEqual(55);
    let altered = 0;
    for (const path of paths) {
      for (const change of changes) {
        const document = withChange(path, change);
        if (JSON.stringify(document) === JSON.stringify(exported)) continue;
        altered++;
        const result = verifyOffline(document, trust, crypto);
        expect(result.decidable, path.join('/')).toBe(true);
        if (!result.decidable) continue;
        if (path[0] !== 'inclusion') expect(result.authentic, path.join('/')).toBe(false);
        expect(result.included, path.join('/')).toBe(false);
        expect(result.faults).toHaveLength(1);
        expect(result.status).toBe('unknown');
      }
    }
    expect(altered).toBeGreaterThan(4 * paths.length);
  });

  it('ignores the verdict in the document', () => {
    const genuine = verifyOffline(exported, trust, crypto);
    for (const [verification_status, can_assert_validity] of [
      ['REVOKED', false],
      ['TRUST_ESTABLISHED', true],
    ] as const) {
      const { verdict, ...rest } = exportOf(admitted);
      const told = { ...verdict, verification_status, can_assert_validity };
      expect(verifyOffline({ ...rest, verdict: told }, trust, crypto)).toEqual(genuine);
    }
    const elsewhere = { ...exportOf(admitted), log_vkey: 'elsewhere' };
    expect(verifyOffline(elsewhere, trust, crypto)).toEqual(genuine);
    const lied = { ...exportOf(admitted).verdict, can_assert_validity: false };
    expect(verifyOffline({ ...exportOf(admitted), verdict: lied }, trust, crypto)).toMatchObject({
      authentic: false,
      faults: [{ code: 'malformed_export' }],
    });
  });

  it('rejects a document with any member omitted or added', () => {
    const document = exported as Record<string, JsonValue>;
    for (const name of Object.keys(document)) {
      const rest = structuredClone(document);
      delete rest[name];
      expect(verifyOffline(rest, trust, crypto)).toMatchObject({ authentic: false });
    }
    const more = { ...document, status: 'VALID' };
    expect(verifyOffline(more, trust, crypto)).toMatchObject({ authentic: false });
    for (const nonsense of [null, undefined, [], {}, 7, new ArrayBuffer(8)]) {
      expect(verifyOffline(nonsense, trust, crypto)).toMatchObject({
        authentic: false,
        faults: [{ code: 'malformed_export' }],
      });
    }
  });

  it('rejects a consistent document with another proof id', () => {
    const record = buildProofRecord(sha256, {
      proof_id: denied.proofId,
      aep: admitted.aepBytes,
      signature: admitted.signature,
      key_id: aepKey.keyId,
      request_hash: admitted.aep.request_hash,
      effect: 'ADMIT',
      lane: 'execute',
    });
    const entry = {
      ...exportOf(admitted).entry,
      proof_id: denied.proofId,
      proof_record_hash: proofRecordHash(sha256, record),
    };
    const document = {
      ...exportOf(admitted),
      proof_id: denied.proofId,
      proof_record: record,
      response_hash: record.response_hash,
      entry,
    };
    expect(verifyOffline(document, trust, crypto)).toMatchObject({
      authentic: false,
      faults: [{ code: 'proof_id_mismatch' }],
    });
  });

  it('does not throw for text that has no UTF-8 form', () => {
    const document = withChange(['aep', 'subject', 'intent_id'], () => '\ud800');
    expect(verifyOffline(document, trust, crypto)).toMatchObject({
      authentic: false,
      faults: [{ code: 'lone_surrogate' }],
    });
  });

  it('distinguishes authentic from included', () => {
    const other = exportOf(denied);
    const moved = { ...exportOf(admitted), inclusion: other.inclusion };
    expect(verifyOffline(moved, trust, crypto)).toMatchObject({
      authentic: true,
      included: false,
      faults: [{ code: 'not_in_tree' }],
    });
    const otherLog: OfflineTrust = {
      ...trust,
      log: { vkey: logVkey, origin: 'log.example/other' },
    };
    expect(verifyOffline(exported, otherLog, crypto)).toMatchObject({
      authentic: true,
      included: false,
      faults: [{ code: 'wrong_origin' }],
    });
  });

  it('makes no statement about inclusion when no log is pinned', () => {
    const result = verifyOffline(exported, { aepKeys: trust.aepKeys }, crypto);
    expect(result).toMatchObject({ authentic: true, status: 'unknown' });
    expect(result).not.toHaveProperty('included');
    expect(result).not.toHaveProperty('under');
  });

  it('is undecidable with a cause when no key is pinned', () => {
    expect(verifyOffline(exported, { ...trust, aepKeys: [] }, crypto)).toMatchObject({
      decidable: false,
      cause: 'no_pinned_key',
    });
    // The right key in the document does not make the document trusted.
    const stranger = { ...trust, aepKeys: [testKey(2).publicKey] };
    expect(verifyOffline(exported, stranger, crypto)).toMatchObject({
      decidable: false,
      cause: 'signing_key_not_pinned',
    });
  });

  it('selects the key among several pinned ones', () => {
    const several = { ...trust, aepKeys: [testKey(2).publicKey, aepKey.publicKey] };
    expect(verifyOffline(exported, several, crypto)).toMatchObject({
      authentic: true,
      included: true,
    });
  });

  it('depends on the signature check', () => {
    const yes = { sha256, verify: () => true };
    const forged = withChange(['envelope', 'signatures', 0, 'sig'], (sig) => sig);
    expect(verifyOffline(forged, trust, yes)).toMatchObject({ authentic: true });
    const no = { sha256, verify: () => false };
    expect(verifyOffline(exported, trust, no)).toMatchObject({
      authentic: false,
      included: false,
      faults: [{ code: 'bad_signature' }],
    });
  });

  it('accepts text, bytes of any realm and a parsed value', () => {
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

  it('accepts a key as bytes, base64url and JWK', () => {
    const { publicKey } = aepKey;
    const spellings = [
      publicKey,
      Buffer.from(publicKey),
      toBase64Url(publicKey),
      publicJwk(sha256, publicKey),
    ];
    for (const key of spellings) {
      expect(verifyOffline(exported, { ...trust, aepKeys: [key] }, crypto)).toMatchObject({
        authentic: true,
      });
    }
    // Of two pins of a key, the narrower one applies.
    const ended = { ...publicJwk(sha256, publicKey), retired_at: 1 };
    expect(
      verifyOffline(exported, { ...trust, aepKeys: [publicKey, ended] }, crypto),
    ).toMatchObject({ authentic: false, faults: [{ code: 'key_not_in_force' }] });
  });

  it('is undecidable for an untyped caller that pins nothing', () => {
    for (const nothing of [{}, { aepKeys: undefined }, { aepKeys: [], log: null }]) {
      expect(verifyOffline(exported, nothing, crypto)).toMatchObject({ cause: 'no_pinned_key' });
      expect(verifyTlogProof('', '', nothing, crypto)).toMatchObject({ cause: 'no_pinned_log' });
    }
    for (const wrong of [aepKey.publicKey, toBase64Url(aepKey.publicKey), null]) {
      const unlisted = { aepKeys: wrong } as unknown as OfflineTrust;
      expect(refusal(() => verifyOffline(exported, unlisted, crypto)).code).toBe('malformed_key');
    }
  });

  it('throws for unusable pins, which are the caller’s error', () => {
    const broken = { ...trust, log: { vkey: 'nonsense', origin: ORIGIN } };
    expect(refusal(() => verifyOffline(exported, broken, crypto)).code).toBe('malformed_vkey');
    const short = { ...trust, aepKeys: [new Uint8Array(3)] };
    expect(refusal(() => verifyOffline(exported, short, crypto)).code).toBe('malformed_key');
  });
});
