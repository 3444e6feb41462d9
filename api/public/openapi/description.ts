import { publicProblemSchema } from '#protocol/schemas/problem';
import type { ApiDescription } from '../../openapi/description.js';
import { Problem, PROBLEMS, type ProblemCode } from '../http/problem.js';
import { problemsOf, type PublicSpec } from '../operation.js';
import { GUIDE, TAGS } from './guide.js';

const RETRY = { 'Retry-After': 'Seconds to wait before trying again.' };
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
      certificate_id: { description: ANY_TEXT },
      passport_id: { description: ANY_TEXT },
      trust_id: { description: ANY_TEXT },
      trust_asset_id: { description: ANY_TEXT },
      share_token: { description: ANY_TEXT },
      package_id: { description: ANY_TEXT },
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
