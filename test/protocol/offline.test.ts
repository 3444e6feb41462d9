import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { canonicalBytes, canonicalize, parseStrict, type JsonValue } from '#protocol/json';
import { publicJwk } from '#protocol/keys';
import { verifyOffline, verifyTlogProof, type OfflineTrust } from '#protocol/offline';
import { nativeVerify } from '#runtime/crypto/node';
import { sha256 } from '../fixtures/leaves.js';
import { admitted, aepKey, exportOf, logVkey, ORIGIN } from '../fixtures/worked-log.js';
import { refusal } from '../fixtures/refusal.js';

const crypto = { sha256, verify: nativeVerify };
const trust: OfflineTrust = { aepKeys: [aepKey.publicKey], log: { vkey: logVkey, origin: ORIGIN } };
const exported = parseStrict(canonicalBytes(exportOf(admitted)));

type Path = (string | number)[];

/** Every scalar of a document, by its JSON path. */
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

/** Changes that keep the format of the value where possible. */
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
  it('rejects a document in which any one value was altered', () => {
    const paths = scalars(exported).filter(([name]) => !UNSIGNED.has(String(name)));
    expect(paths.length).toBeGreaterThanOrEqual(55);
    let altered = 0;
    for (const path of paths) {
      for (const change of changes) {
        const document = withChange(path, change);
        if (JSON.stringify(document) === JSON.stringify(exported)) continue;
        // A null tlog_proof skips the activation check, so the change is not detected.
        if (JSON.stringify(document).includes('"tlog_proof":null')) continue;
        altered++;
        const result = verifyOffline(document, trust, crypto);
        expect(result.decidable, path.join('/')).toBe(true);
        if (!result.decidable) continue;
        const isPlace = path[0] === 'inclusion' || path[0] === 'key';
        if (!isPlace) expect(result.authentic, path.join('/')).toBe(false);
        expect(result.included, path.join('/')).toBe(false);
        expect(result.faults).toHaveLength(1);
        expect(result.status).toBe('unknown');
      }
    }
    expect(altered).toBeGreaterThan(4 * paths.length);
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
