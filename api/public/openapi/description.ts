import { publicProblemSchema } from '#protocol/schemas/problem';
import type { ApiDescription } from '../../openapi/description.js';
import { Problem, PROBLEMS, type ProblemCode } from '../http/problem.js';
import { problemsOf, type PublicSpec } from '../operation.js';
import { GUIDE, TAGS } from './guide.js';

const RETRY = { 'Retry-After': 'Seconds to wait before trying again.' };
const ANY_TEXT = 'Any text will do; what is no such identifier does not resolve.';

const SNAPSHOT_HEADERS = {
  'X-Svc-Tree-Size': {
    description: 'How many entries the log had when the snapshot was made.',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  'X-Svc-Snapshot-Generation': {
    description: 'The number of the snapshot; a later one has a greater one.',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  'X-Svc-Snapshot-Issued-At': {
    description: 'When the snapshot was signed.',
    schema: { type: 'string', format: 'date-time' },
  },
};

export function publicDescription(): ApiDescription<PublicSpec> {
  return {
    title: 'Public verification API',
    summary: 'Says what was verified, to anybody, and never more than that.',
    guide: GUIDE,
    answersMayGainMembers: false,
    tags: TAGS,
    problems: {
      table: PROBLEMS,
      schema: publicProblemSchema,
      members: {},
      headers: {
        unsupported_media_type: { Accept: 'The media type that is taken.' },
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
      proof_id: { description: 'Any text will do; what is no proof id is not found.' },
      certificate_id: { description: ANY_TEXT },
      passport_id: { description: ANY_TEXT },
      trust_id: { description: ANY_TEXT },
      trust_asset_id: { description: ANY_TEXT },
      share_token: { description: ANY_TEXT },
      package_id: { description: ANY_TEXT },
      tile: { description: '`<level>/<index>`, or `entries/<index>`.' },
      leaf_index: { description: 'From 0 on, less than the size of the log.' },
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
