import { publicKeysSchema } from '#protocol/snapshot/keys';
import { logEntrySchema } from '#protocol/schemas/log-entry';
import { exampleExport } from '../../openapi/example-export.js';
import { exampleKeys, exampleTlogProof } from '../openapi/examples.js';
import type { Operation } from '../operation.js';
import { getCheckpoint, getEntry, getInclusionProof, getTile } from './files.js';
import { getKeys } from './keys.js';

/** The public log. `/log` is the monitoring prefix for C2SP tlog-tiles clients. */
export const LOG_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      id: 'keys',
      method: 'get',
      path: '/api/public/keys',
      tag: 'Log',
      summary: 'List the public keys',
      description:
        'AEP keys as JWKs with the log ranges that they are valid for, log and snapshot keys as C2SP ' +
        'verifier keys. Pin the log and snapshot keys from another channel.',
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
      summary: 'Get the signed checkpoint',
      description: 'The C2SP tlog-checkpoint of the served snapshot.',
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
      summary: 'Get a hash tile or an entry bundle',
      description:
        'C2SP tlog-tiles. Send the slashes within `tile` unencoded, as in ' +
        '`/log/tile/entries/x001/234.p/56`. A tile never changes.',
      takesRest: true,
      fromSnapshot: true,
      responses: {
        200: {
          description: 'Hashes of 32 bytes, or length-prefixed entries.',
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
      summary: 'Get a log entry',
      description:
        'The server verifies the inclusion under the served checkpoint before it sends the entry.',
      fromSnapshot: true,
      responses: {
        200: {
          description: 'The bytes of the entry. The leaf hash is SHA-256 of 0x00 and these bytes.',
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
      summary: 'Get an inclusion proof',
      description:
        'A C2SP tlog-proof under the served checkpoint: index, path and signed checkpoint.',
      fromSnapshot: true,
      responses: {
        200: {
          description: 'A C2SP tlog-proof file.',
          content: { 'text/plain': 'text' },
          headers: { 'Content-Disposition': 'The file name.' },
          example: exampleTlogProof,
        },
      },
      problems: ['leaf_not_found', 'snapshot_missing', 'snapshot_unreadable'],
    },
    handler: getInclusionProof,
  },
];
