import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import {
  ID_PREFIX,
  isBatchId,
  isPackageId,
  isProofId,
  isShareToken,
  resolveIdentifier,
} from '#protocol/ids';
import { formatTime, parseTime } from '#protocol/time';
import { refusal } from '../fixtures/refusal.js';

const id = '019a2f3c4d5e7f608172a3b4c5d6e7f8';

describe('artifact identifiers', () => {
  it.each(Object.entries(ID_PREFIX))('resolve in their documented form: %s', (field, prefix) => {
    expect(resolveIdentifier(prefix + id)).toEqual({ proof_id: id, matched_on: field });
  });

  it.each([
    '',
    id.toUpperCase(),
    id.slice(1),
    ` ${id}`,
    `CERT_${id}`,
    `toString${id}`,
    `share_${id}`,
    `pkg_${id}`,
    id.slice(0, 12) + '4' + id.slice(13),
    id.slice(0, 16) + 'c' + id.slice(17),
  ])('do not resolve when written as %j', (text) => {
    expect(resolveIdentifier(text)).toBeNull();
  });

  it('have one valid spelling each', () => {
    expect(isProofId(id)).toBe(true);
    expect(isPackageId(`pkg_${id}`)).toBe(true);
    expect(isPackageId(id)).toBe(false);
    expect(isBatchId(`batch_${id}`)).toBe(true);
    const token = toBase64Url(new Uint8Array(32).fill(255));
    expect(isShareToken(`share_${token}`)).toBe(true);
    // Unused trailing bits would give a token several encodings.
    expect(isShareToken(`share_${token.slice(0, -1)}9`)).toBe(false);
    expect(isShareToken(`share_${token}A`)).toBe(false);
  });
});

describe('formatTime and parseTime', () => {
  it('agree with Date, for increasing times and within one second', () => {
    const times = fc.integer({ min: -62167219200000, max: 253402300799999 });
    fc.assert(
      fc.property(times, fc.array(fc.integer({ min: -1500, max: 1500 })), (start, steps) => {
        for (const step of steps) {
          const ms = Math.min(Math.max(start + step, -62167219200000), 253402300799999);
          expect(formatTime(ms)).toBe(new Date(ms).toISOString());
        }
      }),
    );
  });

  it.each([
    '2026-11-20T17:29:00Z',
    '2026-11-20T17:29:00.123+00:00',
    '2026-02-30T00:00:00.000Z',
    '2026-01-01T24:00:00.000Z',
    '+002026-11-20T17:29:00.123Z',
    '2026-11-20T17:29:00.123Z\n',
  ])('reject %j', (text) => {
    expect(refusal(() => parseTime(text)).code).toBe('malformed_time');
  });

  it.each([0.5, Number.NaN, Infinity, 253402300800000, -62167219200001, 8.64e15 + 1])(
    'reject %d ms since the epoch',
    (ms) => {
      expect(refusal(() => formatTime(ms)).code).toBe('malformed_time');
    },
  );
});
