import fc from 'fast-check';
import { expect, it } from 'vitest';
import { concat, equalBytes, fromHex } from '#protocol/bytes';
import { attempt, ProtocolError } from '#protocol/errors';
import {
  decodeAepKey,
  decodeHistory,
  decodeProof,
  encodeAepKey,
  encodeEvent,
  encodeProof,
} from '#protocol/state/record';
import { fullLog } from '../fixtures/full-log.js';

const valuesOf = (kind: number) =>
  fullLog.map
    .map(({ key, record, history }) => ({
      key: fromHex(key),
      record: fromHex(record),
      history: fromHex(history),
    }))
    .filter(({ key }) => key[0] === kind);
const proofs = valuesOf(1);
const [aepKey] = valuesOf(2);

const again = {
  proof: (bytes: Uint8Array) => encodeProof(decodeProof(bytes)),
  aepKey: (bytes: Uint8Array) => encodeAepKey(decodeAepKey(bytes)),
  history: (bytes: Uint8Array) => concat(...decodeHistory(bytes).map(encodeEvent)),
};

it.each([
  ['proof', proofs[0]!.record],
  ['history', proofs[0]!.history],
  ['aepKey', aepKey!.record],
] as const)(
  '%s decoder > rejects altered bytes unless encoding the result reproduces them',
  (form, bytes) => {
    const changed = fc.tuple(fc.nat(bytes.length - 1), fc.nat(255), fc.nat(bytes.length));
    fc.assert(
      fc.property(changed, fc.boolean(), ([at, byte, length], isCut) => {
        const other = isCut ? bytes.slice(0, length) : Uint8Array.from(bytes);
        if (at < other.length) other[at] = byte;
        try {
          return equalBytes(again[form](other), other);
        } catch (error) {
          return error instanceof ProtocolError && error.code === 'malformed_record';
        }
      }),
      { numRuns: 5000 },
    );
  },
);

const RECORD = proofs[0]!.record;
/** One millisecond after the year 9999. */
const TOO_LATE = [0xe6, 0x77, 0xd2, 0x1f, 0xdc, 0];
const changedAt = (at: number, ...bytes: number[]): Uint8Array => {
  const record = Uint8Array.from(RECORD);
  record.set(bytes, at);
  return record;
};

it.each([
  ['another version', changedAt(0, 2)],
  // Without artifacts, no other rule concerns the effect.
  ['an unknown effect', changedAt(40, ...new Array<number>(18).fill(255)).with(1, 0b01_0011)],
  ['an unknown verdict', changedAt(1, 0b11_1000)],
  ['an unknown bit', changedAt(1, 0b1001_1000)],
  ['an unknown revoked kind', changedAt(2, 16)],
  ['a last byte of the head that is not 0', changedAt(3, 1)],
  ['a missing index', changedAt(4, 255, 255, 255, 255, 255, 255)],
  ['a pass without a size', changedAt(16, 255, 255, 255, 255, 255, 255)],
  ['a time without a verdict', changedAt(1, 0b1000)],
  ['a verdict that does not cover the leaf', changedAt(21, 6)],
  ['a key that is activated later', changedAt(33, 6)],
  ['an acceptance after the year 9999', changedAt(10, ...TOO_LATE)],
  ['a verdict after the year 9999', changedAt(22, ...TOO_LATE)],
  ['a validity that ends after the year 9999', changedAt(34, ...TOO_LATE)],
  ['the certificate of a denial', changedAt(1, 0b01_1001)],
  ['the end of an artifact that does not exist', changedAt(1, 0b01_0000)],
  ['an additional byte', concat(RECORD, Uint8Array.of(0))],
])('a proof record with %s is malformed', (_, record) => {
  expect(attempt(() => decodeProof(record))).toBeUndefined();
});

it('a proof record states whether the environment is live', () => {
  expect(decodeProof(changedAt(1, 0b01_1100)).isLive).toBe(true);
});

it('a history with a time after the year 9999 is malformed', () => {
  const event = Uint8Array.of(1, 0, 0, 0, 0, 0, 13, ...TOO_LATE);
  expect(attempt(() => decodeHistory(event))).toBeUndefined();
  event.set([0xdb, 0xff], 11);
  expect(decodeHistory(event)).toHaveLength(1);
});
