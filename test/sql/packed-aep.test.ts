import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aepBytes, aepText } from '#protocol/aep';
import { isWellFormed, utf8 } from '#protocol/bytes';
import { aepSchema, type Aep } from '#protocol/schemas/aep';
import { packAep, unpackAep } from '#sql/proofs/packed-aep';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import vectors from '../../protocol/vectors/aep.json' with { type: 'json' };

/** The stored form of the vectors' AEPs. */
const STORED: Record<string, string> = {
  admission:
    '01000000019aa2c1e07b7c0f8a3e5d6b7c8d9e0fd42c197677b4a58d15cc08e2903c10a330abd80ba38bf6c7' +
    '4ca646442ecb56eefc81a0fc919df43964e6046a9d8060f6b76e4a7b0f2ead38b0e67ce0af043b960a81325d' +
    '4a52c9c0914697311d22914e210e687d5c611c018460d0774ddabd9ea2f328f469beeef00b9f6027fdbf9228' +
    'b0afe74fe832678c311c04a41df1ec5890facafea9b1556698540f70c0117a22ea37bd5cf3ed3c47093c1707' +
    '282b4b8901a1fa011fdb000e74656e616e742d6578616d706c650006342e31332e3001001773616e64626f78' +
    '2d74656e616e74732d6d61792d61637400010009666978747572652d31000101a951b24bdb0101a951b24bdb' +
    '0101a2947fe7db0010424f4f4b5f5245534552564154494f4e001a72756e2d372f737465702d332f72c3a973' +
    '657276657220e29c88',
  denial:
    '01000100019aa2c1e07b7c108a3e5d6b7c8d9e0f51c249ebc3337a5413afae07ea86a65cbb9fac91b321373c' +
    '815ae8c7dc5476da385859e0e1498052a6ccf7d358dfe86062a95a38e7ec2c4486cdc44fcc5bda790a81325d' +
    '4a52c9c0914697311d22914e210e687d5c611c018460d0774ddabd9ea2f328f469beeef00b9f6027fdbf9228' +
    'b0afe74fe832678c311c04a41df1ec5890facafea9b1556698540f70c0117a22ea37bd5cf3ed3c47093c1707' +
    '282b4b8901a1fa011fdb000e74656e616e742d6578616d706c650006342e31332e3001001161756469742d6c' +
    '6f672d69732d6b657074000000001044454c4554455f41554449545f4c4f47000c72756e2d372f737465702d' +
    '34',
};

describe('packAep', () => {
  it('is reversible byte for byte, and shortens the text', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        const bytes = aepBytes(aep);
        const packed = packAep(aep, aepText(aep));
        expect(packed[0]).toBe(1);
        expect(packed.length).toBeLessThan(bytes.length / 2);
        expect(unpackAep(packed).equals(bytes)).toBe(true);
      }),
    );
  });

  it('keeps an AEP as text when the template cannot restore it', () => {
    fc.assert(
      fc.property(anyAep, fc.string().filter(isWellFormed), (aep, text) => {
        expect(packAep(aep, text).equals(utf8(text))).toBe(true);
      }),
    );
  });

  it.each([
    ['a reason too long', (aep: Aep) => (aep.decision.reasons = ['x'.repeat(70_000)])],
    ['a key id of another form', (aep: Aep) => (aep.key_id = 'key')],
    ['a hash of another form', (aep: Aep) => (aep.salt = 'AB'.repeat(32))],
    ['too many reasons', (aep: Aep) => (aep.decision.reasons = Array<string>(256).fill('r'))],
  ])('keeps an AEP as text when it has %s', (_, change) => {
    const [aep] = fc.sample(anyAep, 1);
    change(aep!);
    expect(packAep(aep!, aepText(aep!)).equals(aepBytes(aep!))).toBe(true);
  });

  it.each(vectors)('keeps its format: unpackAep decodes $name from fixed bytes', (vector) => {
    const stored = Buffer.from(STORED[vector.name] ?? '', 'hex');
    expect(unpackAep(stored).toString()).toBe(vector.canonical);
    const aep = aepSchema.parse(vector.aep);
    expect(packAep(aep, aepText(aep)).equals(stored)).toBe(true);
  });

  it('allows unpackAep to return another text for a damaged AEP, but never to throw', () => {
    fc.assert(
      fc.property(anyAep, fc.nat(), fc.integer({ min: 1, max: 255 }), (aep, place, mask) => {
        const text = Buffer.from(aepBytes(aep));
        const packed = packAep(aep, aepText(aep));
        const at = place % packed.length;
        packed[at] = packed[at]! ^ mask;
        expect(unpackAep(packed).equals(text)).toBe(false);
      }),
    );
    for (const short of [Buffer.alloc(0), Buffer.from([1]), Buffer.alloc(300, 1)]) {
      expect(unpackAep(short).equals(short)).toBe(true);
    }
  });
});
