import { admitted, exportOf } from '../worked-log.js';
import { replaced, textOf } from './sealed.js';
import { notAuthentic, trust } from './trust.js';
import type { OfflineVector } from './vector.js';

const genuine = textOf(exportOf(admitted));
const head = `"proof_id":"${admitted.proofId}","proof_record":`;
const intent = '"intent_id":"run-7/step-3/réserver ✈"';

const texts: [name: string, about: string, text: string, fault: string][] = [
  ['truncated', 'The text ends early.', genuine.slice(0, -1), 'malformed_json'],
  ['byte-order-mark', 'A byte order mark stands before it.', `\ufeff${genuine}`, 'malformed_json'],
  ['trailing-text', 'Another document follows.', `${genuine}{}`, 'malformed_json'],
  [
    'trailing-comma',
    'A comma stands before the closing brace.',
    `${genuine.slice(0, -1)},}`,
    'malformed_json',
  ],
  ['empty', 'There is no text at all.', '', 'malformed_json'],
  [
    'duplicate-key',
    'The effect is there twice: readers that take the first see another one than those that take the last.',
    replaced(genuine, '"effect":"ADMIT"', '"effect":"DENY","effect":"ADMIT"'),
    'duplicate_key',
  ],
  [
    'duplicate-key-escaped',
    'The same name twice, once with an escape.',
    replaced(genuine, head, `"proof\\u005fid":"${'0'.repeat(32)}",${head}`),
    'duplicate_key',
  ],
  [
    'duplicate-key-same-value',
    'A member is there twice with the same value.',
    replaced(genuine, head, `"proof_id":"${admitted.proofId}",${head}`),
    'duplicate_key',
  ],
  [
    'lone-surrogate',
    'A string holds half of a surrogate pair, which has no UTF-8 form.',
    replaced(genuine, intent, '"intent_id":"run-7/\\ud800"'),
    'lone_surrogate',
  ],
  [
    'nul-character',
    'A string holds U+0000, at which some readers stop.',
    replaced(genuine, intent, '"intent_id":"run-7\\u0000"'),
    'nul_character',
  ],
  [
    'huge-integer',
    'An integer that a double does not hold.',
    replaced(genuine, '"leaf_index":1', '"leaf_index":9007199254740993'),
    'integer_out_of_range',
  ],
  [
    'huge-exponent',
    'A number that is infinite as a double.',
    replaced(genuine, '"tree_size":5', '"tree_size":5e400'),
    'integer_out_of_range',
  ],
  [
    'deep-nesting',
    'More arrays are open at once than any document needs.',
    replaced(genuine, '"tree_size":5', `"tree_size":5,"z":${'['.repeat(100)}${']'.repeat(100)}`),
    'too_deep',
  ],
];

/** Bytes that a lenient decoder would replace and go on. */
function notUtf8(): OfflineVector {
  const bytes = Buffer.from(genuine);
  bytes[bytes.indexOf('é')] = 0xff;
  return {
    name: 'not-utf8',
    about: 'A byte is not UTF-8.',
    trust,
    export_base64: bytes.toString('base64'),
    expected: notAuthentic('invalid_utf8'),
  };
}

/** Texts that are not one document with one meaning. */
export const textVectors: OfflineVector[] = [
  notUtf8(),
  ...texts.map(([name, about, text, fault]) => ({
    name,
    about,
    trust,
    export: text,
    expected: notAuthentic(fault),
  })),
];
