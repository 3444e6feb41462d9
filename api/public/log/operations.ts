import { publicKeysSchema } from '#protocol/snapshot/keys';
import { logEntrySchema } from '#protocol/schemas/log-entry';
import { exampleExport } from '../../openapi/example-export.js';
import { exampleKeys, exampleTlogProof } from '../openapi/examples.js';
import type { Operation } from '../operation.js';
import { getCheckpoint, getEntry, getInclusionProof, getTile } from './files.js';
import { getKeys } from './keys.js';

/** The log as anybody may read it: `/log` is the prefix that C2SP tlog-tiles clients are given. */
export const LOG_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      id: 'keys',
      method: 'get',
      path: '/api/public/keys',
      tag: 'Log',
      summary: 'The keys that signed what is served',
      description:
        'AEP keys as JWKs with the log positions that their signatures count at, log and snapshot ' +
        'keys as C2SP verifier keys. Pin the latter two from elsewhere before you believe them.',
      fromSnapshot: true,
      responses: {
        200: {
          description: 'The keys as of this snapshot.',
          content: { 'application/json': publicKeysSchema },
          example: exampleKeys,
        },
      },
      problems: ['snapshot_missing'],
    },
    handler: getKeys,
  },
  {
    spec: {
      id: 'checkpoint',
      method: 'get',
      path: '/log/checkpoint',
      tag: 'Log',
      summary: 'The signed checkpoint',
      description: 'C2SP tlog-checkpoint: the one that the served snapshot was made under.',
      fromSnapshot: true,
      responses: {
        200: {
          description: 'A signed note.',
          content: { 'text/plain': 'text' },
          example: exampleExport.inclusion.checkpoint,
        },
      },
      problems: ['snapshot_missing'],
    },
    handler: getCheckpoint,
  },
  {
    spec: {
      id: 'tile',
      method: 'get',
      path: '/log/tile/{tile}',
      tag: 'Log',
      summary: 'A tile of hashes, or a bundle of entries',
      description:
        'C2SP tlog-tiles. The slashes within `tile` are sent as they are, like in ' +
        '`/log/tile/entries/x001/234.p/56`. A tile never changes.',
      takesRest: true,
      fromSnapshot: true,
      responses: {
        200: {
          description: 'Hashes of 32 bytes, or entries, each after its length.',
          content: { 'application/octet-stream': 'binary' },
        },
      },
      problems: ['log_file_not_found', 'snapshot_unreadable'],
    },
    handler: getTile,
  },
  {
    spec: {
      id: 'logEntry',
      method: 'get',
      path: '/log/entry/{leaf_index}',
      tag: 'Log',
      summary: 'One entry of the log',
      description: 'Shown to be under the served checkpoint before it is given out.',
      fromSnapshot: true,
      responses: {
        200: {
          description: 'The bytes of the entry: SHA-256 of 0x00 and these is the leaf hash.',
          content: { 'application/json': logEntrySchema },
          example: exampleExport.entry,
        },
      },
      problems: ['leaf_not_found', 'snapshot_missing', 'snapshot_unreadable'],
    },
    handler: getEntry,
  },
  {
    spec: {
      id: 'inclusionProof',
      method: 'get',
      path: '/log/proof/{leaf_index}',
      tag: 'Log',
      summary: 'Inclusion of an entry under the served checkpoint',
      description: 'A C2SP tlog-proof: index, path and signed checkpoint.',
      fromSnapshot: true,
      responses: {
        200: {
          description: 'A file for a client of C2SP tlog-proof.',
          content: { 'text/plain': 'text' },
          headers: { 'Content-Disposition': 'A name for the file.' },
          example: exampleTlogProof,
        },
      },
      problems: ['leaf_not_found', 'snapshot_missing', 'snapshot_unreadable'],
    },
    handler: getInclusionProof,
  },
];
