import { toBase64 } from '#protocol/bytes';
import { formatCheckpoint } from '#protocol/checkpoint';
import { checkpoint, checkpointText, leaves, ORIGIN, root } from '../worked-log.js';
import { oddSignatures } from './odd-signatures.js';
import { logKey, replaced, signedHead, signedText, strangerKey } from './sealed.js';

const OTHER = 'log.example/other';
const lines = checkpoint.split('\n');
const signatureLine = lines.at(-2)!;

/** Of a note: the same text under what a key pair makes of it, though it names the log's. */
function signedAs(signature: Uint8Array): string {
  const keyHash = Buffer.from(signatureLine.split(' ')[2]!, 'base64').subarray(0, 4);
  const line = `\u2014 ${ORIGIN} ${Buffer.concat([keyHash, signature]).toString('base64')}`;
  return `${checkpointText}\n${line}\n`;
}

const message = new TextEncoder().encode(checkpointText);

/** Checkpoints in place of the genuine one; of each, what the checkpoint alone says. */
export const badCheckpoints: [name: string, about: string, checkpoint: string, fault: string][] = [
  [
    'other-logs-checkpoint',
    'A checkpoint of another log, signed by that log: same tree, other name and key.',
    signedHead(leaves, { origin: OTHER, name: OTHER, key: strangerKey }),
    'unknown_signer',
  ],
  [
    'checkpoint-by-stranger',
    'A stranger signed the checkpoint under the name of the log.',
    signedHead(leaves, { key: strangerKey }),
    'unknown_signer',
  ],
  [
    'wrong-origin',
    'The log signed a checkpoint of another origin.',
    signedHead(leaves, { origin: OTHER }),
    'wrong_origin',
  ],
  [
    'checkpoint-bad-signature',
    'The signature of the checkpoint is that of a stranger under the key id of the log.',
    signedAs(strangerKey.sign(message)),
    'bad_checkpoint_signature',
  ],
  [
    'checkpoint-altered-size',
    'The size was altered after signing.',
    replaced(checkpoint, `${ORIGIN}\n5\n`, `${ORIGIN}\n6\n`),
    'bad_checkpoint_signature',
  ],
  ...oddSignatures.map(([name, about, make]): [string, string, string, string] => [
    `checkpoint-${name}`,
    `The signature of the checkpoint: ${about}`,
    signedAs(make(logKey, message)),
    'bad_checkpoint_signature',
  ]),
  [
    'checkpoint-one-bad-of-two',
    'Two signatures by the log, the second of which is none.',
    `${checkpoint}${signedAs(strangerKey.sign(message)).split('\n').at(-2)!}\n`,
    'bad_checkpoint_signature',
  ],
  [
    'checkpoint-no-signature',
    'The checkpoint is not signed.',
    `${checkpointText}\n`,
    'malformed_note',
  ],
  [
    'checkpoint-hyphen',
    'A hyphen stands where the signature line has an em dash.',
    checkpoint.replace('\u2014', '-'),
    'malformed_note',
  ],
  [
    'checkpoint-crlf',
    'Lines end in carriage return and line feed.',
    checkpoint.replaceAll('\n', '\r\n'),
    'malformed_note',
  ],
  [
    'checkpoint-no-final-newline',
    'The last line does not end.',
    checkpoint.slice(0, -1),
    'malformed_note',
  ],
  [
    'checkpoint-signature-base64',
    'The signature of the checkpoint is not canonical base64.',
    replaced(checkpoint, signatureLine, signatureLine.replace(/=*$/, '')),
    'malformed_note',
  ],
  [
    'checkpoint-leading-zero',
    'The size is written with a leading zero, signed so.',
    signedText(replaced(checkpointText, '\n5\n', '\n05\n')),
    'malformed_checkpoint',
  ],
  [
    'checkpoint-extension',
    'The checkpoint has an extension line, signed so.',
    signedText(`${checkpointText}more\n`),
    'malformed_checkpoint',
  ],
  [
    'checkpoint-short-root',
    'The root has 31 bytes, signed so.',
    signedText(`${ORIGIN}\n5\n${toBase64(root.slice(1))}\n`),
    'malformed_checkpoint',
  ],
  [
    'checkpoint-root-base64',
    'The root is not canonical base64, signed so.',
    signedText(replaced(checkpointText, 'kPzk=', 'kPzl=')),
    'malformed_checkpoint',
  ],
  [
    'forked-checkpoint',
    'The log signed another tree of the same size.',
    signedText(formatCheckpoint({ origin: ORIGIN, size: 5, root: leaves[0]! })),
    'not_in_tree',
  ],
];
