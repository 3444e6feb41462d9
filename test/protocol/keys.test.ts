import { describe, expect, it } from 'vitest';
import { fromBase64Url } from '#protocol/bytes';
import { nobleSha256 } from '#protocol/hash';
import { jwkThumbprint, publicJwk } from '#protocol/keys';
import { refusal } from '../fixtures/refusal.js';

// RFC 8037 appendix A.3: the thumbprint of the example key.
const x = '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo';
const thumbprint = 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k';

describe('AEP key ids', () => {
  it('are RFC 7638 thumbprints', () => {
    expect(jwkThumbprint(nobleSha256, fromBase64Url(x))).toBe(thumbprint);
    expect(publicJwk(nobleSha256, fromBase64Url(x))).toEqual({
      kty: 'OKP',
      crv: 'Ed25519',
      x,
      kid: thumbprint,
      use: 'sig',
      alg: 'EdDSA',
    });
  });

  it('require keys of 32 bytes', () => {
    expect(refusal(() => jwkThumbprint(nobleSha256, new Uint8Array(31))).code).toBe(
      'malformed_key',
    );
  });
});
