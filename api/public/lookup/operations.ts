import * as z from 'zod';
import { facadeSchema } from '#protocol/schemas/facade';
import { lookupRequestSchema, notFoundSchema } from '#protocol/schemas/lookup';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ResponseSpec } from '../../openapi/operation-spec.js';
import { BODY_LIMIT, Problem, type ProblemCode } from '../http/problem.js';
import {
  EXAMPLE_ID,
  exampleResponse,
  examplePackageResponse,
  exampleUnresolved,
} from '../openapi/examples.js';
import type { Handler, Operation, PublicSpec } from '../operation.js';
import { postLookup } from './post.js';
import { VERIFY } from './routes.js';

/** Problems of every operation that needs a valid snapshot. */
export const SNAPSHOT_PROBLEMS: readonly ProblemCode[] = [
  'snapshot_missing',
  'snapshot_expired',
  'snapshot_unreadable',
];

/** Reached only by a path that `handleLookup` rejects: it runs before every route and handles all lookups. */
export const handledByFastPath: Handler = (_ctx, req) => {
  throw new Problem(
    'route_not_found',
    `The public API has no route ${req.url ?? ''}. See /docs for all routes.`,
  );
};

export const ETAG = { ETag: 'Strong; send it back in `If-None-Match`.' };
const NOT_CHANGED: ResponseSpec = { description: 'Not modified since the sent ETag.' };

type Examples = Record<string, unknown>;

const verdictResponse = (description: string, examples: Examples): ResponseSpec => ({
  description,
  content: { 'application/json': facadeSchema },
  examples,
});

const ANY_VERDICT = 'The verdict, positive or not: check `can_assert_validity`.';

interface PathLookup {
  /** The path segment between `verify/` and the identifier. */
  name: string;
  id: string;
  parameter: string;
  summary: string;
  description: string;
  response: ResponseSpec;
}

const LOOKUPS: readonly PathLookup[] = [
  {
    name: 'certificate',
    id: 'verifyCertificate',
    parameter: 'certificate_id',
    summary: 'Verify a certificate',
    description: 'Also matched: `cert_id`, `certificate_ref`, `trust_asset_id`.',
    response: verdictResponse(ANY_VERDICT, {
      resolved: exampleResponse('certificate', 'certificate_id'),
      unresolved: exampleUnresolved('certificate', 'cert_unknown'),
    }),
  },
  {
    name: 'passport',
    id: 'verifyPassport',
    parameter: 'passport_id',
    summary: 'Verify a passport',
    description: 'Also matched: `passport_ref`, `execution_passport_id`.',
    response: verdictResponse(ANY_VERDICT, {
      resolved: exampleResponse('passport', 'passport_id'),
      unresolved: exampleUnresolved('passport', 'pass_unknown'),
    }),
  },
  {
    name: 'trust',
    id: 'verifyTrust',
    parameter: 'trust_id',
    summary: 'Verify a trust artifact',
    description: 'Also matched: `trust_ref`, `trust_asset_id`.',
    response: verdictResponse(ANY_VERDICT, {
      resolved: exampleResponse('trust', 'trust_id'),
      unresolved: exampleUnresolved('trust', 'trust_unknown'),
    }),
  },
  {
    name: 'trust-asset',
    id: 'verifyTrustAsset',
    parameter: 'trust_asset_id',
    summary: 'Verify a trust asset',
    description: 'Returns the trust artifact of the same proof.',
    response: verdictResponse(ANY_VERDICT, {
      resolved: exampleResponse('trust', 'trust_asset_id'),
    }),
  },
  {
    name: 'package',
    id: 'verifyPackage',
    parameter: 'package_id',
    summary: 'Verify a trust package',
    description:
      'A package has the worst status of its members: REVOKED when any member is, else ' +
      'BACKEND_LOOKUP_REQUIRED when any member is, else EXPIRED when any member is, and ' +
      'TRUST_ESTABLISHED when all members are.',
    response: verdictResponse('The verdict on the package and on each member.', {
      resolved: examplePackageResponse,
      unresolved: exampleUnresolved('trust', 'pkg_unknown'),
    }),
  },
];

const proofLookup: PublicSpec = {
  id: 'verifyProof',
  method: 'get',
  path: `${VERIFY}/proof/{proof_id}`,
  tag: 'Verification',
  summary: 'Verify a proof',
  description:
    'Covers the whole history. Any text that is not the identifier of a published proof returns the ' +
    'not-found record; NOT_FOUND is valid as of the log size in `X-Svc-Tree-Size`.',
  takesRest: true,
  fromSnapshot: true,
  responses: {
    200: {
      ...verdictResponse(ANY_VERDICT, { resolved: exampleResponse('proof', 'proof_id') }),
      headers: ETAG,
    },
    304: NOT_CHANGED,
    404: {
      description: 'The registry has no such proof.',
      content: { 'application/json': notFoundSchema },
    },
  },
  problems: SNAPSHOT_PROBLEMS,
};

const byPath = LOOKUPS.map(
  ({ name, id, parameter, summary, description, response }): PublicSpec => ({
    id,
    method: 'get',
    path: `${VERIFY}/${name}/{${parameter}}`,
    tag: 'Verification',
    summary,
    description: `${description} Covers the whole history.`,
    fromSnapshot: true,
    responses: { 200: { ...response, headers: ETAG }, 304: NOT_CHANGED },
    problems: SNAPSHOT_PROBLEMS,
  }),
);

const shareLookup: PublicSpec = {
  id: 'verifyShare',
  method: 'get',
  path: `${VERIFY}/share/{share_token}`,
  tag: 'Verification',
  summary: 'Verify a shared artifact',
  description:
    'Returns the lookup response of the artifact or package that the token shares, over the whole ' +
    'history. An unknown token and an ended one get the same response. Caches must not store it.',
  fromSnapshot: true,
  responses: {
    200: verdictResponse(ANY_VERDICT, {
      resolved: exampleResponse('proof', 'share_token'),
      unresolved: exampleUnresolved('proof', 'share_unknown'),
    }),
  },
  problems: SNAPSHOT_PROBLEMS,
};

const aliases = (['certificate', 'passport', 'trust'] as const).map((name): PublicSpec => {
  const lookup = LOOKUPS.find((one) => one.name === name)!;
  return {
    id: `${name}Alias`,
    method: 'get',
    path: `/api/public/${name}/{${lookup.parameter}}`,
    tag: 'Artifacts',
    summary: `${lookup.summary} by its short path`,
    description: `The same response as \`${VERIFY}/${name}/{${lookup.parameter}}\`, byte for byte.`,
    fromSnapshot: true,
    responses: { 200: { ...lookup.response, headers: ETAG }, 304: NOT_CHANGED },
    problems: SNAPSHOT_PROBLEMS,
  };
});

const optionalText = (alias: string) => z.string().optional().meta({ description: alias });

const GENERIC_NOTE =
  'Matched: `proof_id`, `registry_entry_id`, `execution_id`, `certificate_id`, `passport_id`, ' +
  '`trust_id`, `trust_asset_id`, `share_token`, `package_id`, among recent proofs only. For an older ' +
  'artifact this route returns BACKEND_LOOKUP_REQUIRED; the path of its kind returns the verdict.';

const GENERIC_EXAMPLES = {
  resolved: exampleResponse('proof', 'execution_id'),
  unresolved: exampleUnresolved('proof', 'anything'),
};

const genericGet: PublicSpec = {
  id: 'verifyIdentifier',
  method: 'get',
  path: VERIFY,
  tag: 'Verification',
  summary: 'Verify by any identifier',
  description: `Give exactly one of the parameters. ${GENERIC_NOTE}`,
  query: z.object({
    identifier: optionalText('The identifier to look up.'),
    q: optionalText('Alias of `identifier`.'),
    id: optionalText('Alias of `identifier`.'),
  }),
  fromSnapshot: true,
  responses: {
    200: { ...verdictResponse(ANY_VERDICT, GENERIC_EXAMPLES), headers: ETAG },
    304: NOT_CHANGED,
  },
  problems: ['identifier_missing', 'identifier_ambiguous', ...SNAPSHOT_PROBLEMS],
};

const genericPost: PublicSpec = {
  id: 'verifyByBody',
  method: 'post',
  path: VERIFY,
  tag: 'Verification',
  summary: 'Verify by any identifier in a body',
  description:
    'Read-only. A field of one kind matches only that kind; `identifier` matches every kind. ' +
    GENERIC_NOTE,
  body: {
    schema: lookupRequestSchema,
    limit: BODY_LIMIT,
    examples: {
      proof: { schema_version: SCHEMA.lookupRequest, proof_id: EXAMPLE_ID.proof_id },
      any: { schema_version: SCHEMA.lookupRequest, identifier: EXAMPLE_ID.execution_id },
    },
  },
  fromSnapshot: true,
  responses: { 200: verdictResponse(ANY_VERDICT, GENERIC_EXAMPLES) },
  problems: ['identifier_missing', 'identifier_ambiguous', ...SNAPSHOT_PROBLEMS],
};

export const LOOKUP_OPERATIONS: readonly Operation[] = [
  ...[proofLookup, ...byPath, shareLookup, genericGet].map((spec) => ({
    spec,
    handler: handledByFastPath,
  })),
  { spec: genericPost, handler: postLookup },
  ...aliases.map((spec) => ({ spec, handler: handledByFastPath })),
];
