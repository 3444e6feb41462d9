import { createPrivateKey, sign as nodeSign } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromBase64, toBase64, toHex } from '#protocol/bytes';
import { formatCheckpoint, openCheckpoint, parseCheckpoint } from '#protocol/checkpoint';
import { nobleVerify } from '#protocol/ed25519';
import { nobleSha256 } from '#protocol/hash';
import { formatVkey, keyId, openNote, parseVkey, signNote } from '#protocol/note';
import { formatTlogProof, parseTlogProof } from '#protocol/tlog-proof';
import { leafHashes } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import rfc8032 from '../vectors/rfc8032.json' with { type: 'json' };

// The example of the C2SP signed-note specification.
const VKEY = 'example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k';
const NOTE =
  'This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n';

/** A signer from an RFC 8032 test key. */
function signer(name: string, vector: number) {
  const { seed, public_key } = rfc8032[vector]!;
  const pkcs8 = Buffer.from(`302e020100300506032b657004220420${seed}`, 'hex');
  const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' });
  const publicKey = new Uint8Array(Buffer.from(public_key, 'hex'));
  return {
    name,
    publicKey,
    keyHash: keyId(nobleSha256, name, publicKey),
    vkey: formatVkey(nobleSha256, name, publicKey),
    sign: (message: Uint8Array) => nodeSign(null, message, key),
  };
}

const log = signer('example.com/log', 0);
const witness = signer('witness.example/w', 1);
const signatureLine = (note: string) => note.slice(note.lastIndexOf('\n\n') + 2);

describe('signed notes', () => {
  it('open for the example of the specification', () => {
    const opened = openNote(NOTE, [VKEY], nobleVerify);
    expect(opened.text).toBe('This is an example message.\n');
    expect(opened.key.name).toBe('example.com/foo');
    expect(toHex(opened.key.keyHash)).toBe('530d903a');
  });

  it('open after signing, for any text', () => {
    const line = fc.string({ unit: 'grapheme' }).filter((text) => !/[\u0000-\u001f]/.test(text));
    fc.assert(
      fc.property(fc.array(line, { minLength: 1, maxLength: 5 }), (lines) => {
        const text = lines.join('\n') + '\n';
        expect(openNote(signNote(text, log), [log.vkey], nobleVerify).text).toBe(text);
      }),
      { numRuns: 25 },
    );
  });

  it('ignore signatures by unknown keys at any position', () => {
    const text = 'text\n';
    const [own, other] = [signNote(text, log), signNote(text, witness)];
    for (const note of [own + signatureLine(other), other + signatureLine(own)]) {
      expect(openNote(note, [log.vkey], nobleVerify).key.name).toBe(log.name);
      expect(openNote(note, [witness.vkey], nobleVerify).key.name).toBe(witness.name);
    }
  });

  it('are rejected without a signature by a pinned key', () => {
    expect(refusal(() => openNote(NOTE, [log.vkey], nobleVerify)).code).toBe('unknown_signer');
    expect(refusal(() => openNote(NOTE, [], nobleVerify)).code).toBe('unknown_signer');
    // The same name under another key is another key.
    const namesake = signer('example.com/foo', 2);
    expect(refusal(() => openNote(NOTE, [namesake.vkey], nobleVerify)).code).toBe('unknown_signer');
  });

  it('are rejected with a bad signature by a pinned key, even beside a valid one', () => {
    const good = signNote('text\n', log);
    const bad = signatureLine(signNote('other\n', log));
    expect(refusal(() => openNote(good + bad, [log.vkey], nobleVerify)).code).toBe('bad_signature');
    const forged = good.replace('text', 'test');
    expect(refusal(() => openNote(forged, [log.vkey], nobleVerify)).code).toBe('bad_signature');
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

  it.each([
    ['no signature', 'text\n\n'],
    ['no text', '\n\n— a AAAAAAA=\n'.slice(2)],
    ['no newline after the last of two signatures', `${NOTE}— a AAAAAAA=`],
    ['a carriage return', NOTE.replaceAll('\n', '\r\n')],
    ['a tab in the text', NOTE.replace('an example', 'an\texample')],
    ['no name', NOTE.replace(' example.com/foo', ' ')],
    ['a signature without bytes', NOTE + '— a AAAAAA==\n'],
    ['something after the signatures', NOTE + 'x\n'],
    ['an empty line among the signatures', NOTE + '\n' + '— a AAAAAAA=\n' + '\n'],
    ['too many signatures', NOTE + '— a AAAAAAA=\n'.repeat(64)],
  ])('are rejected with %s', (_, note) => {
    expect(refusal(() => openNote(note, [VKEY], nobleVerify)).code).toBe('malformed_note');
  });

  it.each(['no newline', 'tab\there\n', 'nul\0\n', ''])(
    'cannot be signed for the text %j',
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
  ])('reject the verifier key %j', (vkey) => {
    expect(refusal(() => parseVkey(vkey)).code).toBe('malformed_vkey');
  });

  it('reject keys with invalid names or lengths', () => {
    expect(refusal(() => keyId(nobleSha256, 'a b', log.publicKey)).code).toBe('malformed_vkey');
    expect(refusal(() => keyId(nobleSha256, 'a+b', log.publicKey)).code).toBe('malformed_vkey');
    expect(refusal(() => keyId(nobleSha256, '', log.publicKey)).code).toBe('malformed_vkey');
    expect(refusal(() => keyId(nobleSha256, 'a', new Uint8Array(31))).code).toBe('malformed_key');
  });
});

// The text of the example of the C2SP tlog-checkpoint specification.
const CHECKPOINT =
  'example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n';

describe('checkpoints', () => {
  it('parse and format the example of the specification', () => {
    const checkpoint = parseCheckpoint(CHECKPOINT);
    expect(checkpoint.origin).toBe('example.com/behind-the-sofa');
    expect(checkpoint.size).toBe(20852163);
    expect(checkpoint.root).toEqual(fromBase64('CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I='));
    expect(formatCheckpoint(checkpoint)).toBe(CHECKPOINT);
  });

  it.each([
    CHECKPOINT.replace('20852163', '020852163'),
    CHECKPOINT.replace('20852163', '-1'),
    CHECKPOINT.replace('20852163', '9007199254740992'),
    CHECKPOINT.replace('q2I=', 'q2J='),
    CHECKPOINT.replace('CsUY', ''),
    CHECKPOINT.replace('example.com/behind-the-sofa', ''),
    CHECKPOINT + 'extension\n',
    CHECKPOINT.replaceAll('\n', '\r\n'),
    '',
  ])('reject %j', (text) => {
    expect(refusal(() => parseCheckpoint(text)).code).toBe('malformed_checkpoint');
  });

  it('open only under the pinned key and origin', () => {
    const checkpoint = { origin: log.name, size: 3, root: leafHashes(1)[0]! };
    const note = signNote(formatCheckpoint(checkpoint), log);
    expect(openCheckpoint(note, log.vkey, log.name, nobleVerify)).toEqual(checkpoint);
    expect(refusal(() => openCheckpoint(note, witness.vkey, log.name, nobleVerify)).code).toBe(
      'unknown_signer',
    );
    expect(refusal(() => openCheckpoint(note, log.vkey, 'other', nobleVerify)).code).toBe(
      'wrong_origin',
    );
    const grown = note.replace('\n3\n', '\n4\n');
    expect(refusal(() => openCheckpoint(grown, log.vkey, log.name, nobleVerify)).code).toBe(
      'bad_signature',
    );
    const notOne = signNote('just text\n', log);
    expect(refusal(() => openCheckpoint(notOne, log.vkey, log.name, nobleVerify)).code).toBe(
      'malformed_checkpoint',
    );
  });
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

  it('have the lines of the specification', () => {
    const [hash] = leafHashes(1);
    expect(
      formatTlogProof({ extra: Uint8Array.of(65), index: 73894, path: [hash!], checkpoint }),
    ).toBe(`c2sp.org/tlog-proof@v1\nextra QQ==\nindex 73894\n${toBase64(hash!)}\n\n${checkpoint}`);
  });

  const text = formatTlogProof({ index: 7, path: leafHashes(2), checkpoint });
  it.each([
    text.replace('@v1', '@v2'),
    text.replace('index 7', 'index 07'),
    text.replace('index 7', 'index -7'),
    text.replace('index 7\n', 'extra \nindex 7\n'),
    text.replace('index 7\n', 'index 7\nextra QQ==\n'),
    text.replace('=\n', '=\nQQ==\n'),
    text.replaceAll('\n', '\r\n'),
    '',
  ])('reject %j', (damaged) => {
    expect(refusal(() => parseTlogProof(damaged)).code).toBe('malformed_tlog_proof');
  });

  it('are not written for invalid parts', () => {
    const proof = { index: 7, path: leafHashes(1), checkpoint };
    for (const wrong of [
      { index: -1 },
      { index: 0.5 },
      { path: [new Uint8Array(31)] },
      { extra: new Uint8Array(0) },
    ]) {
      expect(refusal(() => formatTlogProof({ ...proof, ...wrong })).code).toBe(
        'malformed_tlog_proof',
      );
    }
  });
});
