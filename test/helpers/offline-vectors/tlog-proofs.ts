import { fromUtf8 } from '#protocol/bytes';
import { admitted, denied, exportOf } from '../worked-log.js';
import { badCheckpoints } from './checkpoints.js';
import { replaced, textOf, tlogProofOf } from './sealed.js';
import { notIncluded, trust } from './trust.js';
import type { Outcome, OfflineVector } from './vector.js';

const genuine = tlogProofOf(admitted.leafIndex);
const entry = fromUtf8(admitted.entry);
const hashes = genuine.split('\n').slice(2, 5);
const [first = '', second = '', last = ''] = hashes;
const out = (fault: string): Outcome => ({ included: false, status: 'unknown', fault });

const forms: [name: string, about: string, text: string][] = [
  ['tlog-proof-version', 'The first line names another version.', genuine.replace('@v1', '@v2')],
  [
    'tlog-proof-index-zero-padded',
    'The index has a leading zero.',
    replaced(genuine, 'index 1\n', 'index 01\n'),
  ],
  [
    'tlog-proof-index-negative',
    'The index is negative.',
    replaced(genuine, 'index 1\n', 'index -1\n'),
  ],
  [
    'tlog-proof-index-huge',
    'The index is beyond 2^53 − 1.',
    replaced(genuine, 'index 1\n', 'index 9007199254740993\n'),
  ],
  ['tlog-proof-no-index', 'There is no index.', replaced(genuine, 'index 1\n', '')],
  [
    'tlog-proof-base64',
    'A hash is not canonical base64.',
    replaced(genuine, first, `${first.slice(0, -2)}B=`),
  ],
  [
    'tlog-proof-base64-whitespace',
    'A space follows a hash.',
    replaced(genuine, first, `${first} `),
  ],
  [
    'tlog-proof-crlf',
    'Lines end in carriage return and line feed.',
    genuine.replaceAll('\n', '\r\n'),
  ],
  [
    'tlog-proof-endless-path',
    'The path has more hashes than any tree has levels.',
    replaced(genuine, first, Array<string>(63).fill(first).join('\n')),
  ],
  [
    'tlog-proof-empty-extra',
    'Extra data of no bytes.',
    replaced(genuine, 'index 1\n', 'extra \nindex 1\n'),
  ],
  [
    'tlog-proof-no-checkpoint',
    'It ends with the path.',
    genuine.slice(0, genuine.indexOf('\n\n') + 1),
  ],
  ['tlog-proof-empty', 'There is no text at all.', ''],
];

const paths: [name: string, about: string, text: string][] = [
  [
    'tlog-proof-truncated-path',
    'The last hash of the path is missing.',
    replaced(genuine, `${last}\n`, ''),
  ],
  [
    'tlog-proof-extended-path',
    'The path has a hash more than the tree has levels.',
    replaced(genuine, last, `${last}\n${first}`),
  ],
  [
    'tlog-proof-path-out-of-order',
    'Two hashes of the path have changed places.',
    replaced(genuine, `${first}\n${second}`, `${second}\n${first}`),
  ],
  [
    'tlog-proof-index-shifted',
    'The index is one more.',
    replaced(genuine, 'index 1\n', 'index 2\n'),
  ],
  ['tlog-proof-of-another', 'It is that of another entry.', tlogProofOf(denied.leafIndex)],
];

const entries: [name: string, about: string, text: string, fault: string][] = [
  [
    'entry-altered',
    'The entry commits to another AEP.',
    replaced(entry, admitted.record.aep_hash, denied.record.aep_hash),
    'not_in_tree',
  ],
  [
    'entry-not-canonical',
    'The entry has a space in it.',
    replaced(entry, '{"aep_hash"', '{ "aep_hash"'),
    'malformed_entry',
  ],
  ['entry-with-newline', 'A line break follows the entry.', `${entry}\n`, 'malformed_entry'],
  [
    'entry-unknown-member',
    'The entry has a member that the format has not.',
    replaced(entry, '"type":"proof"}', '"type":"proof","use":"aep"}'),
    'malformed_entry',
  ],
  [
    'entry-duplicate-key',
    'The entry has its type twice.',
    replaced(entry, '"type":"proof"}', '"type":"status","type":"proof"}'),
    'malformed_entry',
  ],
];

const about = (name: string, why: string, text: string, fault: string, leaf = entry) => ({
  name,
  about: why,
  trust,
  tlog_proof: text,
  entry: leaf,
  expected: out(fault),
});

/** tlog-proofs that do not show that their entry is in the log. */
export const tlogProofVectors: OfflineVector[] = [
  ...forms.map(([name, why, text]) => about(name, why, text, 'malformed_tlog_proof')),
  ...paths.map(([name, why, text]) => about(name, why, text, 'not_in_tree')),
  ...badCheckpoints.map(([name, why, note, fault]) =>
    about(`tlog-proof-${name}`, why, tlogProofOf(admitted.leafIndex, note), fault),
  ),
  ...entries.map(([name, why, leaf, fault]) => about(name, why, genuine, fault, leaf)),
  {
    name: 'tlog-proof-no-pinned-log',
    about: 'No log is pinned.',
    trust: { aep_keys: trust.aep_keys },
    tlog_proof: genuine,
    entry,
    expected: { undecidable: 'no_pinned_log' },
  },
  {
    name: 'tlog-proof-of-another-beside-export',
    about: 'Beside a genuine export, the tlog-proof of another entry.',
    trust,
    export: textOf(exportOf(admitted)),
    tlog_proof: tlogProofOf(denied.leafIndex),
    expected: notIncluded('not_in_tree'),
  },
  {
    name: 'tlog-proof-malformed-beside-export',
    about: 'Beside a genuine export, whose own inclusion is good, a tlog-proof that is none.',
    trust,
    export: textOf(exportOf(admitted)),
    tlog_proof: 'nonsense',
    expected: notIncluded('malformed_tlog_proof'),
  },
];
