import { ProtocolError } from '#protocol/errors';
import { parseStrict, type JsonValue } from '#protocol/json';
import { SCHEMA } from '#protocol/schemas/ids';
import { LOOKUP_FIELDS, type LookupField } from '#protocol/schemas/facade';
import type { Exchange } from '../context.js';
import { sendFailure } from '../http/answer.js';
import { Problem, PROBLEMS, readBody, type ProblemCode } from '../http/problem.js';
import { PACKAGE_KIND, SHARED, type VerdictRoute } from './resolve.js';
import { answerLookup, type LookupTarget } from './verdict.js';

/** The ids that a generic lookup matches, and the artifact that each one names. */
const MATCHES = {
  proof_id: 'proof',
  registry_entry_id: 'proof',
  execution_id: 'proof',
  certificate_id: 'certificate',
  passport_id: 'passport',
  trust_id: 'trust',
  trust_asset_id: 'trust',
  share_token: SHARED,
  package_id: PACKAGE_KIND,
} as const satisfies VerdictRoute['matches'];

export const genericRoute: VerdictRoute = { matches: MATCHES, windowed: true, unmatched: 'proof' };

/** The query parameter and its aliases. */
export const QUERY_NAMES = ['identifier', 'q', 'id'] as const;

/** The identifier of a query. Throws unless exactly one of {@link QUERY_NAMES} is given once. */
export function requestedByQuery(query: string): string {
  const parameters = new URLSearchParams(query);
  const given = QUERY_NAMES.flatMap((name) => parameters.getAll(name));
  const [requested = ''] = given;
  if (given.length > 1) {
    throw new Problem(
      'identifier_ambiguous',
      'Send exactly one of the parameters identifier, q and id.',
    );
  }
  if (requested === '') {
    throw new Problem(
      'identifier_missing',
      'Send the identifier to look up as ?identifier= (or q, or id).',
    );
  }
  return requested;
}

/** POST /api/public/verify: the generic lookup with the identifier in the body. Read-only. */
export async function postLookup(exchange: Exchange): Promise<void> {
  let target: LookupTarget;
  try {
    target = requestedByBody(await readBody(exchange.req));
  } catch (error) {
    // Secret: the body may contain a share token.
    sendFailure({ ...exchange, secret: true }, error);
    return;
  }
  await answerLookup(exchange, target);
}

/** The route and identifier of a POST lookup body. */
export function requestedByBody(body: Uint8Array): LookupTarget {
  const document = parseBody(body);
  if (typeof document !== 'object' || document === null || Array.isArray(document)) {
    throw invalid('invalid_field', '', 'Expected a JSON object.');
  }
  const members = new Map(Object.entries(document));
  if (members.get('schema_version') !== SCHEMA.lookupRequest) {
    throw invalid('unsupported_schema_version', '/schema_version', `Send ${SCHEMA.lookupRequest}.`);
  }
  for (const name of members.keys()) {
    if (!['schema_version', ...LOOKUP_FIELDS].includes(name)) {
      throw invalid('unknown_field', pointerTo(name), 'Unknown field. Remove it.');
    }
  }
  const [field, second] = LOOKUP_FIELDS.filter((name) => members.has(name));
  if (field === undefined) {
    throw invalid('identifier_missing', '', `Send one of ${LOOKUP_FIELDS.join(', ')}.`);
  }
  if (second !== undefined) {
    throw invalid('identifier_ambiguous', pointerTo(second), 'Send one identifier field only.');
  }
  const requested = members.get(field);
  if (typeof requested !== 'string' || requested === '' || requested.length > 1024) {
    throw invalid('invalid_field', pointerTo(field), 'Expected a string of 1 to 1024 characters.');
  }
  return { route: routeFor(field), requested };
}

/** `identifier` matches every kind of id; any other field matches only its kind. */
function routeFor(field: LookupField): VerdictRoute {
  if (field === 'identifier') return genericRoute;
  const matches = { [field]: MATCHES[field] };
  return { ...genericRoute, matches, ...(field === 'share_token' && { isSecret: true }) };
}

function parseBody(body: Uint8Array): JsonValue {
  try {
    return parseStrict(body);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const isKnown = Object.hasOwn(PROBLEMS, error.code);
    const code = isKnown ? (error.code as ProblemCode) : 'malformed_json';
    throw invalid(code, error.pointer ?? '', error.message);
  }
}

function pointerTo(name: string): string {
  return '/' + name.replaceAll('~', '~0').replaceAll('/', '~1');
}

function invalid(code: ProblemCode, pointer: string, detail: string): Problem {
  return new Problem(code, detail, { errors: [{ pointer, detail }] });
}
