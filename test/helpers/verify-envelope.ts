import { createPublicKey, verify } from 'node:crypto';

/** Verifies an AEP's signature with nothing but Node and the DSSE specification. */
export function verifyEnvelopeOf(
  proof: { aep: Buffer | null; signature: Buffer | null },
  publicKey: Uint8Array,
): boolean {
  const type = 'application/vnd.svc.aep+json';
  const payload = proof.aep ?? Buffer.alloc(0);
  const pae = Buffer.concat([
    Buffer.from(`DSSEv1 ${type.length} ${type} ${payload.length} `),
    payload,
  ]);
  const key = createPublicKey({
    key: { kty: 'OKP', crv: 'Ed25519', x: Buffer.from(publicKey).toString('base64url') },
    format: 'jwk',
  });
  return verify(null, pae, key, proof.signature ?? Buffer.alloc(0));
}
