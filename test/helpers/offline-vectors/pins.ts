import { toBase64, toBase64Url } from '#protocol/bytes';
import { publicJwk } from '#protocol/keys';
import { formatVkey } from '#protocol/note';
import { sha256 } from '../leaves.js';
import { admitted, aepKey, exportOf, logVkey, ORIGIN } from '../worked-log.js';
import { littleEndian } from './odd-signatures.js';
import { strangerKey, textOf } from './sealed.js';
import { trust } from './trust.js';
import type { OfflineVector, VectorTrust } from './vector.js';

const genuine = textOf(exportOf(admitted));
const jwk = publicJwk(sha256, aepKey.publicKey);
const [key = ''] = trust.aep_keys;

/** y = p + 3, the encoding of a point of large order that is not the canonical one. */
const notCanonical = littleEndian(2n ** 255n - 19n + 3n);
/** y = 2, for which the curve has no x. */
const noPoint = littleEndian(2n);

const cases: [name: string, about: string, pins: Partial<VectorTrust>, error: string][] = [
  [
    'key-too-short',
    'A key of 31 bytes.',
    { aep_keys: [toBase64Url(aepKey.publicKey.slice(1))] },
    'malformed_key',
  ],
  ['key-padded', 'base64url with padding.', { aep_keys: [`${key}=`] }, 'malformed_key'],
  ['key-of-nothing', 'No key at all.', { aep_keys: [null] }, 'malformed_key'],
  [
    'jwk-of-another-curve',
    'A JWK of another curve.',
    { aep_keys: [{ ...jwk, crv: 'X25519' }] },
    'malformed_key',
  ],
  [
    'jwk-for-encryption',
    'A JWK that is for encryption.',
    { aep_keys: [{ ...jwk, use: 'enc' }] },
    'malformed_key',
  ],
  [
    'jwk-with-private-key',
    'A JWK that holds the private key.',
    { aep_keys: [{ ...jwk, d: key }] },
    'malformed_key',
  ],
  [
    'jwk-with-bound-of-text',
    'A JWK whose end is no log position.',
    { aep_keys: [{ ...jwk, compromised_from: '4' }] },
    'malformed_key',
  ],
  [
    'jwk-with-foreign-kid',
    'A JWK under the id of another key.',
    { aep_keys: [{ ...jwk, kid: strangerKey.keyId }] },
    'key_id_mismatch',
  ],
  [
    'key-not-canonical',
    'The encoding of a point with y = p + 3.',
    { aep_keys: [toBase64Url(notCanonical)] },
    'unusable_key',
  ],
  [
    'key-no-point',
    'y = 2, for which the curve has no x.',
    { aep_keys: [toBase64Url(noPoint)] },
    'unusable_key',
  ],
  [
    'vkey-id',
    'A verifier key whose id is not that of its key.',
    { log_vkey: logVkey.replace('+1c73', '+1c74') },
    'malformed_vkey',
  ],
  [
    'vkey-of-another-type',
    'A verifier key of a signature type other than Ed25519.',
    { log_vkey: otherType() },
    'malformed_vkey',
  ],
  [
    'vkeys-of-two-logs',
    'Verifier keys of two names: a log is its origin.',
    { log_vkey: [logVkey, formatVkey(sha256, 'log.example/other', strangerKey.publicKey)] },
    'malformed_vkey',
  ],
  ['no-vkey', 'A log without a verifier key.', { log_vkey: [] }, 'malformed_vkey'],
  [
    'vkey-of-small-order',
    'A verifier key of small order.',
    { log_vkey: formatVkey(sha256, ORIGIN, littleEndian(1n)) },
    'unusable_key',
  ],
  ['empty-origin', 'An origin of no characters.', { log_origin: '' }, 'malformed_origin'],
  [
    'origin-of-two-lines',
    'An origin with a line break.',
    { log_origin: `${ORIGIN}\n5` },
    'malformed_origin',
  ],
];

/** The worked vkey as of type 0x02. The id is wrong for it too, and is looked at later. */
function otherType(): string {
  const typed = Buffer.from(logVkey.slice(logVkey.lastIndexOf('+') + 1), 'base64');
  typed[0] = 2;
  return logVkey.slice(0, logVkey.lastIndexOf('+') + 1) + toBase64(typed);
}

/** A genuine export under pins that are none: the reader's fault and not the document's. */
export const pinVectors: OfflineVector[] = cases.map(([name, about, change, error]) => ({
  name,
  about,
  trust: { ...trust, ...change },
  export: genuine,
  expected: { error },
}));
