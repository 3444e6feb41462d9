import { aepBytes, AEP_PAYLOAD_TYPE } from '#protocol/aep';
import { toBase64Url } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import { smallOrderPublicKeys } from '#protocol/ed25519';
import { publicJwk } from '#protocol/keys';
import { sha256 } from '../leaves.js';
import { admitted, aepKey, exportOf } from '../worked-log.js';
import { signedByNobody } from './odd-signatures.js';
import { changed, sealed, strangerKey, textOf } from './sealed.js';
import { notAuthentic, trust } from './trust.js';
import type { Outcome, OfflineVector, VectorTrust } from './vector.js';

const genuine = textOf(exportOf(admitted));
const jwk = publicJwk(sha256, aepKey.publicKey);

/** Under these one signature can be made to fit by anybody; each would verify without the rule. */
const smallOrder: OfflineVector[] = smallOrderPublicKeys().map((publicKey, i) => {
  const message = pae(AEP_PAYLOAD_TYPE, aepBytes(sealed({ publicKey }).aep));
  return {
    name: `small-order-key-${i}`,
    about: `The pinned key ${Buffer.from(publicKey).toString('hex')} is of small order, and the export is signed by nobody.`,
    trust: { ...trust, aep_keys: [toBase64Url(publicKey)] },
    export: textOf(sealed({ publicKey, signature: signedByNobody(publicKey, message) })),
    expected: { error: 'unusable_key' },
  };
});

const undecidable: [
  name: string,
  about: string,
  pins: VectorTrust,
  exported: string,
  cause: string,
][] = [
  ['no-pinned-key', 'No AEP key is pinned.', { ...trust, aep_keys: [] }, genuine, 'no_pinned_key'],
  [
    'no-pinned-key-and-no-export',
    'No AEP key is pinned, whatever the document is.',
    { aep_keys: [] },
    '{}',
    'no_pinned_key',
  ],
  [
    'brings-its-own-key',
    'Sound throughout, under a key that it brings along and nobody pinned.',
    trust,
    textOf(sealed({ publicKey: strangerKey.publicKey, ...strangersSignature() })),
    'signing_key_not_pinned',
  ],
  [
    'another-key-pinned',
    'A genuine export, of which the reader pinned another key.',
    { ...trust, aep_keys: [toBase64Url(strangerKey.publicKey)] },
    genuine,
    'signing_key_not_pinned',
  ],
  [
    'ended-key-without-log',
    'By its pin the key came to an end, and without the log nobody can tell before from after.',
    { aep_keys: [{ ...jwk, compromised_from: 4 }] },
    genuine,
    'no_pinned_log',
  ],
];

function strangersSignature() {
  const { publicKey } = strangerKey;
  const message = pae(AEP_PAYLOAD_TYPE, aepBytes(sealed({ publicKey }).aep));
  return { signature: strangerKey.sign(message) };
}

const bounds: [
  name: string,
  about: string,
  bound: object,
  expected: Outcome,
  exported?: unknown,
][] = [
  [
    'compromised-key',
    'By its pin, signatures at this leaf and later do not count.',
    { compromised_from: 1 },
    notAuthentic('key_not_in_force'),
  ],
  [
    'retired-key',
    'By its pin, the key was retired at this leaf.',
    { retired_at: 1 },
    notAuthentic('key_not_in_force'),
  ],
  [
    'key-not-yet-active',
    'By its pin, the key was activated at this leaf.',
    { activated_at: 1 },
    notAuthentic('key_not_in_force'),
  ],
  [
    'ended-key-back-dated',
    'By its pin the key came to an end, and the export claims a place before that which it has not.',
    { compromised_from: 1 },
    notAuthentic('not_in_tree'),
    changed(['inclusion', 'leaf_index'], () => 0),
  ],
];

/** Exports that are not to be believed because of what is pinned. */
export const keyVectors: OfflineVector[] = [
  ...smallOrder,
  ...undecidable.map(([name, about, pinned, exported, cause]) => ({
    name,
    about,
    trust: pinned,
    export: exported,
    expected: { undecidable: cause },
  })),
  ...bounds.map(([name, about, bound, expected, exported]) => ({
    name,
    about,
    trust: { ...trust, aep_keys: [{ ...jwk, ...bound }] },
    export: exported === undefined ? genuine : textOf(exported),
    expected,
  })),
];
