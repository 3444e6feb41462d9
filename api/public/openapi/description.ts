import { publicProblemSchema } from '#protocol/schemas/problem';
import type { ReaderText } from '../../docs/reader.js';
import type { ApiDescription } from '../../openapi/description.js';
import { Problem, PROBLEMS, type ProblemCode } from '../http/problem.js';
import { problemsOf, type PublicSpec } from '../operation.js';
import { GUIDE, TAGS } from './guide.js';

const RETRY = { 'Retry-After': 'Seconds to wait before trying again.' };
const LOOKED_UP = ['certificate', 'passport', 'trust', 'trust_asset', 'package'].map(
  (kind) => `${kind}_id`,
);
const ANY_TEXT = 'Any text is accepted; an unknown identifier does not resolve.';

const SNAPSHOT_HEADERS = {
  'X-Svc-Tree-Size': {
    description: 'The number of log entries in the snapshot.',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  'X-Svc-Snapshot-Generation': {
    description: 'The version of the snapshot; it increases with every snapshot.',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  'X-Svc-Snapshot-Issued-At': {
    description: 'The time of the snapshot signature.',
    schema: { type: 'string', format: 'date-time' },
  },
};

export function publicDescription(): ApiDescription<PublicSpec> {
  return {
    title: 'Public verification API',
    summary: 'Returns the verdicts of the verification system to anyone.',
    guide: GUIDE,
    answersMayGainMembers: false,
    tags: TAGS,
    problems: {
      table: PROBLEMS,
      schema: publicProblemSchema,
      members: {},
      headers: {
        unsupported_media_type: { Accept: 'The accepted media type.' },
        unsupported_content_encoding: {
          'Accept-Encoding': '`identity`: send the body as it is.',
        },
        snapshot_missing: RETRY,
        snapshot_expired: RETRY,
        snapshot_unreadable: RETRY,
      },
      of: problemsOf,
      example: (code) => {
        const known = code as ProblemCode;
        return new Problem(known, `${PROBLEMS[known][1]}.`).document();
      },
    },
    inPath: {
      proof_id: { description: 'Any text is accepted; an unknown proof id is not found.' },
      ...Object.fromEntries(LOOKED_UP.map((name) => [name, { description: ANY_TEXT }])),
      share_token: { description: ANY_TEXT },
      tile: { description: '`<level>/<index>`, or `entries/<index>`.' },
      leaf_index: { description: 'From 0 to the log size minus 1.' },
    },
    headerSchemas: {},
    requestHeadersOf: () => [],
    commonHeaders: SNAPSHOT_HEADERS,
    commonHeadersOf: ({ fromSnapshot, responses }, status) =>
      fromSnapshot === true && status in responses ? Object.keys(SNAPSHOT_HEADERS) : [],
    access: () => ({ words: null, members: { security: [] } }),
    securitySchemes: null,
    worked: { documents: {}, members: {}, texts: {} },
  };
}

/** The texts of the documentation page that the OpenAPI document does not have. */
export const READER_TEXT: ReaderText = {
  guide: GUIDE,
  problems: PROBLEMS,
  credentialsOf: () => [],
  shell: {
    about:
      'Set your own values once; you can then paste the examples below unchanged. Every id of a proof ' +
      'is derived from the proof id.',
    setup: `export SVC_URL=http://127.0.0.1:8081
export PROOF_ID=… # registry_proof_id of a receipt
export PACKAGE_ID=pkg_… # package_id of a trust package
export SHARE_TOKEN=share_…
export TILE=entries/… # as in downloads.entry_bundle of a verdict`,
    inPath: {
      proof_id: '$PROOF_ID',
      certificate_id: 'cert_$PROOF_ID',
      passport_id: 'pass_$PROOF_ID',
      trust_id: 'trust_$PROOF_ID',
      trust_asset_id: 'asset_$PROOF_ID',
      share_token: '$SHARE_TOKEN',
      package_id: '$PACKAGE_ID',
      leaf_index: '0',
      tile: '$TILE',
    },
    queries: { verifyIdentifier: '?identifier=exec_$PROOF_ID', page: '?id=$PROOF_ID' },
    headersOf: () => [],
    inBody: [
      [/^( {2}"proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"'],
      [/^( {2}"identifier": )"exec_[^"]*"/gm, '$1"exec_$PROOF_ID"'],
    ],
  },
};
