import { fromUtf8, toBase64Url, utf8 } from '#protocol/bytes';
import { publicJwk } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import { formatVkey } from '#protocol/note';
import type { Aep } from '#protocol/schemas/aep';
import { leafHashes, sha256 } from '../leaves.js';
import { agentVectors } from '../worked-agent.js';
import {
  admitted,
  aepKey,
  checkpointText,
  denied,
  entries,
  exportOf,
  leaves,
  logVkey,
  ORIGIN,
} from '../worked-log.js';
import { inclusionIn, sealed, signedText, strangerKey, textOf, tlogProofOf } from './sealed.js';
import { included, trust } from './trust.js';
import type { OfflineVector, Outcome, VectorTrust } from './vector.js';

const genuine = exportOf(admitted);
const jwk = publicJwk(sha256, aepKey.publicKey);
const own = leafHash(sha256, admitted.entry);
const witness = signedText(checkpointText, { name: 'witness.example', key: strangerKey });
const cosignature = `${witness.split('\n').at(-2)!}\n`;
const { checkpoint } = genuine.inclusion;
const withCheckpoint = (note: string): unknown => ({
  ...genuine,
  inclusion: { ...genuine.inclusion, checkpoint: note },
});

const documents: [name: string, about: string, text: string, expected: Outcome][] = [
  ['admission', 'The admission of the worked log.', textOf(genuine), included(5)],
  ['denial', 'Its denial.', textOf(exportOf(denied)), included(5)],
  ...agentVectors.map(({ name, aep }): [string, string, string, Outcome] => [
    `agent-${name}`,
    `The ${name} of agent-admission.json, logged in place of the worked admission.`,
    textOf(sealed({ aep: JSON.parse(aep.canonical) as Aep })),
    included(5),
  ]),
  [
    'pretty-printed',
    'Only what is hashed has to be canonical: white space and the order of members of the export say nothing.',
    JSON.stringify(Object.fromEntries(Object.entries(genuine).reverse()), null, 2),
    included(5),
  ],
  [
    'other-verdict',
    'Nobody signs the verdict, the key of the log neither: whatever they say, they are not looked at.',
    textOf({
      ...genuine,
      verdict: {
        ...genuine.verdict,
        verification_status: 'REVOKED',
        can_assert_validity: false,
      },
      log_vkey: null,
    }),
    included(5),
  ],
  [
    'cosigned-checkpoint',
    'A witness signed the checkpoint as well.',
    textOf(withCheckpoint(checkpoint + cosignature)),
    included(5),
  ],
  [
    'cosigned-checkpoint-first',
    'The witness signed first.',
    textOf(withCheckpoint(checkpoint.replace('\n\n', `\n\n${cosignature}`))),
    included(5),
  ],
  ['only-leaf', 'A tree of this leaf alone.', textOf(at([own], 0)), included(1)],
  [
    'last-leaf',
    'The last leaf of a tree that is not full: its path skips levels.',
    textOf(at([...leafHashes(256), own], 256)),
    included(257),
  ],
  [
    'leaf-among-many',
    'Leaf 130 of 300.',
    textOf(at(leafHashes(300).with(130, own), 130)),
    included(300),
  ],
];

function at(hashes: readonly Uint8Array[], index: number): unknown {
  return { ...genuine, inclusion: inclusionIn(hashes, index) };
}

const newLogKey = formatVkey(sha256, ORIGIN, strangerKey.publicKey);
const pins: [name: string, about: string, pins: VectorTrust, expected: Outcome][] = [
  [
    'several-keys',
    'Several AEP keys are pinned.',
    { ...trust, aep_keys: [toBase64Url(strangerKey.publicKey), ...trust.aep_keys] },
    included(5),
  ],
  ['jwk', 'The key is pinned as a JWK.', { ...trust, aep_keys: [jwk] }, included(5)],
  [
    'key-in-force',
    'The pinned key counts from before this leaf to after it.',
    { ...trust, aep_keys: [{ ...jwk, activated_at: 0, retired_at: null, compromised_from: 4 }] },
    included(5),
  ],
  [
    'changed-log-key',
    'The log has changed its key, and both are pinned.',
    { ...trust, log_vkey: [newLogKey, logVkey] },
    included(5),
  ],
  [
    'no-log',
    'No log is pinned: nothing is said about inclusion.',
    { aep_keys: trust.aep_keys },
    { authentic: true, status: 'unknown' },
  ],
];

const inLog: Outcome = { included: true, status: 'unknown since checkpoint 5' };
const TYPES = ['key activation', 'admission', 'denial', 'revocation', 'key compromise'];

/** What offline verification has to accept, for readers that refuse too much. */
export const validVectors: OfflineVector[] = [
  ...documents.map(([name, about, text, expected]) => ({
    name,
    about,
    trust,
    export: text,
    expected,
  })),
  ...pins.map(([name, about, pinned, expected]) => ({
    name,
    about,
    trust: pinned,
    export: textOf(genuine),
    expected,
  })),
  ...entries.map((entry, index) => ({
    name: `tlog-proof-of-leaf-${index}`,
    about: `The entry of a ${TYPES[index]!} in the worked log.`,
    trust,
    tlog_proof: tlogProofOf(index),
    entry: fromUtf8(entry),
    expected: inLog,
  })),
  {
    name: 'tlog-proof-with-extra',
    about: 'Extra data stands before the index, and nothing vouches for it.',
    trust,
    tlog_proof: tlogProofOf(1).replace(
      'index',
      `extra ${Buffer.from(utf8('any')).toString('base64')}\nindex`,
    ),
    entry: fromUtf8(admitted.entry),
    expected: inLog,
  },
  {
    name: 'export-with-later-tlog-proof',
    about: 'An export under an earlier checkpoint, and a tlog-proof under a later one beside it.',
    trust,
    export: textOf(at(leaves.slice(0, 2), 1)),
    tlog_proof: tlogProofOf(1),
    expected: included(5),
  },
];
