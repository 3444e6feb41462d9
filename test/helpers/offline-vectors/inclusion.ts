import { toBase64 } from '#protocol/bytes';
import { inclusionPath } from '#protocol/merkle';
import { sha256 } from '../leaves.js';
import { admitted, denied, exportOf, leaves } from '../worked-log.js';
import { badCheckpoints } from './checkpoints.js';
import { changed, signedHead, textOf } from './sealed.js';
import { notIncluded, trust } from './trust.js';
import type { OfflineVector } from './vector.js';

const genuine = exportOf(admitted);
const { path } = genuine.inclusion;
const swap = <T>([first, second, ...rest]: T[]): unknown[] => [second, first, ...rest];
const inclusion = (change: object): unknown => ({
  ...genuine,
  inclusion: { ...genuine.inclusion, ...change },
});
const smaller = leaves.slice(0, 4);

const claims: [name: string, about: string, document: unknown, fault: string][] = [
  [
    'truncated-path',
    'The last hash of the path is missing.',
    inclusion({ path: path.slice(0, -1) }),
    'not_in_tree',
  ],
  [
    'extended-path',
    'The path has a hash more than the tree has levels.',
    inclusion({ path: [...path, path[0]] }),
    'not_in_tree',
  ],
  ['empty-path', 'There is no path.', inclusion({ path: [] }), 'not_in_tree'],
  [
    'path-out-of-order',
    'Two hashes of the path have changed places.',
    changed(['inclusion', 'path'], swap),
    'not_in_tree',
  ],
  [
    'altered-path',
    'A hash of the path was altered.',
    inclusion({ path: [toBase64(new Uint8Array(32)), ...path.slice(1)] }),
    'not_in_tree',
  ],
  [
    'swapped-inclusion',
    'The inclusion is that of another proof.',
    { ...genuine, inclusion: exportOf(denied).inclusion },
    'not_in_tree',
  ],
  [
    'leaf-index-shifted',
    'The leaf index is one more.',
    inclusion({ leaf_index: 2 }),
    'not_in_tree',
  ],
  [
    'leaf-index-of-neighbour',
    'The leaf index is that of the sibling.',
    inclusion({ leaf_index: 0 }),
    'not_in_tree',
  ],
  [
    'leaf-index-beyond-tree',
    'The leaf index is beyond the tree.',
    inclusion({ leaf_index: 5 }),
    'not_in_tree',
  ],
  [
    'leaf-index-wrapped',
    'The leaf index is 2^32 more, which a reader of 32 bits would not see.',
    inclusion({ leaf_index: 2 ** 32 + 1 }),
    'not_in_tree',
  ],
  [
    'tree-size',
    'The tree size is not that of the checkpoint.',
    inclusion({ tree_size: 6 }),
    'tree_size_mismatch',
  ],
  [
    'other-checkpoint',
    'The checkpoint is an earlier one of the same log.',
    inclusion({ checkpoint: signedHead(smaller) }),
    'tree_size_mismatch',
  ],
  [
    'other-checkpoint-and-size',
    'The checkpoint and the size are earlier ones, the path is not.',
    inclusion({ checkpoint: signedHead(smaller), tree_size: smaller.length }),
    'not_in_tree',
  ],
  [
    'path-of-other-size',
    'The path is that of an earlier tree.',
    inclusion({ path: inclusionPath(sha256, smaller, admitted.leafIndex).map(toBase64) }),
    'not_in_tree',
  ],
];

/** Exports that a pinned key signed and that are not in the log, as far as they show. */
export const inclusionVectors: OfflineVector[] = [
  ...badCheckpoints.map(([name, about, note, fault]) => ({
    name,
    about,
    trust,
    export: textOf(inclusion({ checkpoint: note })),
    expected: notIncluded(fault),
  })),
  ...claims.map(([name, about, document, fault]) => ({
    name,
    about,
    trust,
    export: textOf(document),
    expected: notIncluded(fault),
  })),
];
