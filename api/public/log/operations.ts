import { publicKeysSchema } from '#protocol/snapshot/keys';
import { logEntrySchema } from '#protocol/schemas/log-entry';
import { exampleExport } from '../../openapi/example-export.js';
import { exampleKeys, exampleTlogProof } from '../openapi/examples.js';
import type { Handler, Operation, PublicSpec } from '../operation.js';
import { getCheckpoint, getEntry, getInclusionProof, getKeys, getTile } from './files.js';

const log = (
  handler: Handler,
  {
    response,
    ...spec
  }: Pick<PublicSpec, 'id' | 'path' | 'summary' | 'description' | 'problems'> &
    Partial<PublicSpec> & { response: PublicSpec['responses'][number] },
): Operation => ({
  spec: { method: 'get', tag: 'Log', fromSnapshot: true, responses: { 200: response }, ...spec },
  handler,
});

/** The public log. `/log` is the monitoring prefix for C2SP tlog-tiles clients. */
export const LOG_OPERATIONS: readonly Operation[] = [
  log(getKeys, {
    id: 'keys',
    path: '/api/public/keys',
    summary: 'List the public keys',
    description:
      'AEP keys as JWKs with the log ranges that they are valid for, and the log keys as C2SP vkeys. ' +
      'Obtain the log keys that you pin from another source.',
    response: {
      description: 'The keys as of this snapshot.',
      content: { 'application/json': publicKeysSchema },
      example: exampleKeys,
    },
    problems: ['snapshot_missing', 'snapshot_unreadable'],
  }),
  log(getCheckpoint, {
    id: 'checkpoint',
    path: '/log/checkpoint',
    summary: 'Get the signed checkpoint',
    description:
      "A C2SP tlog-checkpoint: the newest checkpoint that the log's witnesses cosigned. If no checkpoint " +
      'is cosigned, or the witnesses are late, this is the checkpoint of the served snapshot.',
    response: {
      description: 'A signed note.',
      content: { 'text/plain': 'text' },
      example: exampleExport.inclusion.checkpoint,
    },
    problems: ['snapshot_missing'],
  }),
  log(getTile, {
    id: 'tile',
    path: '/log/tile/{tile}',
    summary: 'Get a hash tile or an entry bundle',
    description:
      'C2SP tlog-tiles. Send the slashes within `tile` unencoded, as in ' +
      '`/log/tile/entries/x001/234.p/56`. A tile never changes once a checkpoint covers it.',
    takesRest: true,
    response: {
      description: 'Hashes of 32 bytes, or length-prefixed entries.',
      content: { 'application/octet-stream': 'binary' },
    },
    problems: ['log_file_not_found', 'snapshot_unreadable'],
  }),
  log(getEntry, {
    id: 'logEntry',
    path: '/log/entry/{leaf_index}',
    summary: 'Get a log entry',
    description:
      'The server verifies the inclusion under the served checkpoint before it sends the entry.',
    response: {
      description: 'The bytes of the entry. The leaf hash is SHA-256 of 0x00 and these bytes.',
      content: { 'application/json': logEntrySchema },
      example: exampleExport.entry,
    },
    problems: ['leaf_not_found', 'snapshot_missing', 'snapshot_unreadable'],
  }),
  log(getInclusionProof, {
    id: 'inclusionProof',
    path: '/log/proof/{leaf_index}',
    summary: 'Get an inclusion proof',
    description:
      'A C2SP tlog-proof: index, path and signed checkpoint. The checkpoint is cosigned by witnesses ' +
      'if a cosigned one covers the leaf.',
    response: {
      description: 'A C2SP tlog-proof file.',
      content: { 'text/plain': 'text' },
      headers: { 'Content-Disposition': 'The file name.' },
      example: exampleTlogProof,
    },
    problems: ['leaf_not_found', 'snapshot_missing', 'snapshot_unreadable'],
  }),
];
