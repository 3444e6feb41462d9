import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromBase64, toHex, utf8 } from '#protocol/bytes';
import {
  formatCheckpoint,
  parseCheckpoint,
  formatTlogProof,
  parseTlogProof,
} from '#protocol/checkpoint';
import { nobleVerify } from '#protocol/ed25519';
import { nobleSha256 } from '#protocol/hash';
import { formatVkey, keyId, openNote, parseVkey, signNote } from '#protocol/note';
import { leafHashes } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import { testKey } from '../fixtures/worked-log.js';

// The example of the C2SP signed-note specification.
const VKEY = 'example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k';
const NOTE =
  'This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n';

const { publicKey, sign } = testKey(0);
const name = 'example.com/log';
const log = {
  name,
  keyHash: keyId(nobleSha256, name, publicKey),
  vkey: formatVkey(nobleSha256, name, publicKey),
  sign,
};

describe('signed notes', () => {
  it('reproduce the example of the specification', () => {
    const opened = openNote(NOTE, [VKEY], nobleVerify);
    expect(opened.text).toBe('This is an example message.\n');
    expect(opened.key.name).toBe('example.com/foo');
    expect(toHex(opened.key.keyHash)).toBe('530d903a');
  });

  it('verify after signing, for any text', () => {
    const line = fc.string({ unit: 'grapheme' }).filter((text) => !/[\u0000-\u001f]/.test(text));
    fc.assert(
      fc.property(fc.array(line, { minLength: 1, maxLength: 5 }), (lines) => {
        const text = lines.join('\n') + '\n';
        expect(openNote(signNote(text, log), [log.vkey], nobleVerify).text).toBe(text);
      }),
      { numRuns: 25 },
    );
  });

  it('are rejected with any character of the example changed, omitted or doubled', () => {
    const characters = [...NOTE];
    for (let i = 0; i < characters.length; i++) {
      for (const replacement of [
        '',
        characters[i]! + characters[i]!,
        characters[i] === 'x' ? 'y' : 'x',
        '\n',
      ]) {
        if (replacement === characters[i]) continue;
        const changed = characters.with(i, replacement).join('');
        const { code } = refusal(() => openNote(changed, [VKEY], nobleVerify));
        expect(['malformed_note', 'unknown_signer', 'bad_signature']).toContain(code);
      }
    }
  });

  it('are rejected above 1,000,000 bytes', () => {
    const padded = (name: string): string => `${NOTE}\u2014 ${name} AAAAAAA=\n`;
    const withBytes = (bytes: number): string =>
      padded('\u00e9'.repeat((bytes - utf8(padded('')).length) / 2));
    expect(openNote(withBytes(1_000_000), [VKEY], nobleVerify).key.name).toBe('example.com/foo');
    expect(refusal(() => openNote(withBytes(1_000_002), [VKEY], nobleVerify)).code).toBe(
      'malformed_note',
    );
  });

  it('are rejected with a lone surrogate', () => {
    for (const altered of [
      NOTE.replace('message.\n', 'message.\ud800\n'),
      `${NOTE}\u2014 \ud800 AAAAAAA=\n`,
    ]) {
      const { code } = refusal(() => openNote(altered, [VKEY], nobleVerify));
      expect(code).toBe('malformed_note');
    }
  });

  it('are rejected with more than 64 signatures, or an empty signature of any key', () => {
    const other = '\u2014 example.com/bar AAAAAAA=\n';
    expect(openNote(NOTE + other.repeat(63), [VKEY], nobleVerify).key.name).toBe('example.com/foo');
    for (const added of [other.repeat(64), other.replace('AAAAAAA=', 'AAAAAA==')]) {
      const { code } = refusal(() => openNote(NOTE + added, [VKEY], nobleVerify));
      expect(code).toBe('malformed_note');
    }
  });

  it.each(['no newline', 'tab\there\n', 'nul\0\n', ''])(
    'cannot be created for the text %j',
    (text) => {
      expect(refusal(() => signNote(text, log)).code).toBe('malformed_note');
    },
  );

  it.each([
    '',
    'example.com/foo',
    VKEY.replace('530d903a', '530d903b'),
    VKEY.replace('/foo', '/bar'),
    VKEY.slice(0, -1),
    VKEY + '\n',
    VKEY.replace('+Aeky', '+Beky'),
  ])('cannot be opened with the vkey %j', (vkey) => {
    expect(refusal(() => parseVkey(vkey)).code).toBe('malformed_vkey');
  });
});

it.each(['', 'a b', 'a+b', 'a\n'])('formatVkey > rejects the key name %j', (unusable) => {
  expect(refusal(() => formatVkey(nobleSha256, unusable, publicKey)).code).toBe('malformed_vkey');
});

// The text of the example of the C2SP tlog-checkpoint specification.
const CHECKPOINT =
  'example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n';

it('checkpoints > of the tlog-checkpoint example are the same after parsing and formatting', () => {
  const checkpoint = parseCheckpoint(CHECKPOINT);
  expect(checkpoint.origin).toBe('example.com/behind-the-sofa');
  expect(checkpoint.size).toBe(20852163);
  expect(checkpoint.root).toEqual(fromBase64('CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I='));
  expect(formatCheckpoint(checkpoint)).toBe(CHECKPOINT);
});

it.each([
  ['an empty origin', 'example.com/behind-the-sofa', ''],
  ['a size above 2^53 - 1', '20852163', String(2 ** 53)],
])('checkpoints > with %s are malformed', (_, part, other) => {
  const { code } = refusal(() => parseCheckpoint(CHECKPOINT.replace(part, other)));
  expect(code).toBe('malformed_checkpoint');
});

describe('tlog-proofs', () => {
  const checkpoint = signNote(
    formatCheckpoint({ origin: log.name, size: 9, root: leafHashes(1)[0]! }),
    log,
  );

  it('survive a round trip with and without extra data', () => {
    for (const count of [0, 1, 20]) {
      const proof = { index: 7, path: leafHashes(count), checkpoint };
      expect(parseTlogProof(formatTlogProof(proof))).toEqual(proof);
      const extra = Uint8Array.of(1, 2, 3, 255);
      expect(parseTlogProof(formatTlogProof({ ...proof, extra }))).toEqual({ ...proof, extra });
    }
  });
});
