import { aepBytes, AEP_PAYLOAD_TYPE } from '#protocol/aep';
import { toBase64Url } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import type { Aep } from '#protocol/schemas/aep';
import { admitted, aepKey, denied } from '../worked-log.js';
import { oddSignatures, torsionKey } from './odd-signatures.js';
import { sealed, strangerKey, textOf, type Twist } from './sealed.js';
import { notAuthentic, trust } from './trust.js';
import type { OfflineVector } from './vector.js';

const signed = pae(AEP_PAYLOAD_TYPE, admitted.aepBytes);
const otherAction: Aep = {
  ...admitted.aep,
  subject: { kind: 'execute', intent_id: 'run-7/step-3', action: 'DELETE_AUDIT_LOG' },
};
const otherEffect: Aep = {
  ...denied.aep,
  decision: { effect: 'ADMIT', reasons: ['sandbox-tenants-may-act'] },
  valid_until: admitted.aep.valid_until,
};

const forgeries: [name: string, about: string, twist: Twist][] = [
  [
    'altered-action-throughout',
    'Another action, hashed and logged as if it had been signed: the signature is that of the first.',
    { aep: otherAction, signature: admitted.signature },
  ],
  [
    'altered-effect-throughout',
    'A denial made an admission, hashed and logged so: the signature is that of the denial.',
    { aep: otherEffect, signature: denied.signature },
  ],
  [
    'altered-salt-throughout',
    'Another salt, hashed and logged so.',
    { aep: { ...admitted.aep, salt: '0'.repeat(64) }, signature: admitted.signature },
  ],
  [
    'wrong-key',
    'Signed by a stranger under the id of the pinned key.',
    { signature: strangerKey.sign(signed) },
  ],
  [
    'signature-of-another',
    'The signature is that of another proof.',
    { signature: denied.signature },
  ],
  [
    'signed-without-encoding',
    'The payload itself was signed, not its pre-authentication encoding.',
    { signature: aepKey.sign(admitted.aepBytes) },
  ],
  [
    'signed-as-another-type',
    'The payload was signed as of another type.',
    { signature: aepKey.sign(pae('application/json', admitted.aepBytes)) },
  ],
  ...oddSignatures.map(([name, about, make]): [string, string, Twist] => [
    name,
    about,
    { signature: make(aepKey, signed) },
  ]),
];

/** Exports that are sound but for the signature. */
export const signatureVectors: OfflineVector[] = [
  ...forgeries.map(([name, about, twist]) => ({
    name,
    about,
    trust,
    export: textOf(sealed(twist)),
    expected: notAuthentic('bad_signature'),
  })),
  onlyWithCofactor(),
];

function onlyWithCofactor(): OfflineVector {
  const { publicKey, sign } = torsionKey(aepKey);
  const unsigned = sealed({ publicKey });
  const signature = sign(pae(AEP_PAYLOAD_TYPE, aepBytes(unsigned.aep)));
  return {
    name: 'key-with-torsion',
    about:
      'The pinned key has a part of order 8: the equation holds when multiplied by the cofactor, and not without.',
    trust: { ...trust, aep_keys: [toBase64Url(publicKey)] },
    export: textOf(sealed({ publicKey, signature })),
    expected: notAuthentic('bad_signature'),
  };
}
