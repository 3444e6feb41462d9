import * as z from 'zod';
import { facadeSchema } from '#protocol/schemas/facade';
import { lookupRequestSchema, notFoundSchema } from '#protocol/schemas/lookup';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ResponseSpec } from '../../openapi/operation-spec.js';
import { BODY_LIMIT, Problem, type ProblemCode } from '../http/problem.js';
import {
  EXAMPLE_ID,
  exampleFacade,
  examplePackageFacade,
  exampleUnresolved,
} from '../openapi/examples.js';
import type { Handler, Operation, PublicSpec } from '../operation.js';
import { postLookup } from './post.js';
import { VERIFY } from './routes.js';

/** What any answer that is drawn from a snapshot may be instead. */
export const SNAPSHOT_PROBLEMS: readonly ProblemCode[] = [
  'snapshot_missing',
  'snapshot_expired',
  'snapshot_unreadable',
];

/** Every lookup is taken by `handleLookup`, which listener and app ask before any route. */
export const handledByFastPath: Handler = (_ctx, req) => {
  throw new Problem(
    'route_not_found',
    `There is no ${req.url ?? ''} in the public API: /docs has all that is.`,
  );
};

export const ETAG = { ETag: 'Strong; send it back in `If-None-Match`.' };
const NOT_CHANGED: ResponseSpec = { description: 'Not changed since the ETag that was sent.' };

type Examples = Record<string, unknown>;

const facade = (description: string, examples: Examples): ResponseSpec => ({
  description,
  content: { 'application/json': facadeSchema },
  examples,
});

const WHATEVER = 'The verdict, whatever it is: look at `can_assert_validity`.';

interface PathLookup {
  /** The path's last segment before the identifier, and after `verify/`. */
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
    response: facade(WHATEVER, {
      resolved: exampleFacade('certificate', 'certificate_id'),
      unresolved: exampleUnresolved('certificate', 'cert_unknown'),
    }),
  },
  {
    name: 'passport',
    id: 'verifyPassport',
    parameter: 'passport_id',
    summary: 'Verify a passport',
    description: 'Also matched: `passport_ref`, `execution_passport_id`.',
    response: facade(WHATEVER, {
      resolved: exampleFacade('passport', 'passport_id'),
      unresolved: exampleUnresolved('passport', 'pass_unknown'),
    }),
  },
  {
    name: 'trust',
    id: 'verifyTrust',
    parameter: 'trust_id',
    summary: 'Verify a trust artifact',
    description: 'Also matched: `trust_ref`, `trust_asset_id`.',
    response: facade(WHATEVER, {
      resolved: exampleFacade('trust', 'trust_id'),
      unresolved: exampleUnresolved('trust', 'trust_unknown'),
    }),
  },
  {
    name: 'trust-asset',
    id: 'verifyTrustAsset',
    parameter: 'trust_asset_id',
    summary: 'Verify a trust asset',
    description: 'The trust artifact of the same proof.',
    response: facade(WHATEVER, { resolved: exampleFacade('trust', 'trust_asset_id') }),
  },
  {
    name: 'package',
    id: 'verifyPackage',
    parameter: 'package_id',
    summary: 'Verify a trust package',
    description:
      'A package is as good as its members: REVOKED when one of them is, else ' +
      'BACKEND_LOOKUP_REQUIRED when one of them is, else EXPIRED when one of them is, and ' +
      'TRUST_ESTABLISHED when all of them are.',
    response: facade('The verdict on the package, with that on each member.', {
      resolved: examplePackageFacade,
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
    'Over the whole history. Whatever is no identifier of a published proof is answered with the ' +
    'not-found record; NOT_FOUND holds as of the log size in `X-Svc-Tree-Size`.',
  takesRest: true,
  fromSnapshot: true,
  responses: {
    200: { ...facade(WHATEVER, { resolved: exampleFacade('proof', 'proof_id') }), headers: ETAG },
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
    description: `${description} Over the whole history.`,
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
  summary: 'Verify what a share token shows',
  description:
    'The facade of the artifact or package that the token was made for, over the whole history. ' +
    'Nothing tells a token that never was from one that has ended. No cache may keep the answer.',
  fromSnapshot: true,
  responses: {
    200: facade(WHATEVER, {
      resolved: exampleFacade('proof', 'share_token'),
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
    summary: `${lookup.summary}, by its short path`,
    description: `The same answer as that of \`${VERIFY}/${name}/{${lookup.parameter}}\`, byte for byte.`,
    fromSnapshot: true,
    responses: { 200: { ...lookup.response, headers: ETAG }, 304: NOT_CHANGED },
    problems: SNAPSHOT_PROBLEMS,
  };
});

const asked = (alias: string) => z.string().optional().meta({ description: alias });

const GENERIC_NOTE =
  'Matched: `proof_id`, `registry_entry_id`, `execution_id`, `certificate_id`, `passport_id`, ' +
  '`trust_id`, `trust_asset_id`, `share_token`, `package_id`, among the latest proofs only: an ' +
  'older artifact answers BACKEND_LOOKUP_REQUIRED here, and its verdict on the path of its kind.';

const GENERIC_EXAMPLES = {
  resolved: exampleFacade('proof', 'execution_id'),
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
    identifier: asked('What to look up.'),
    q: asked('The same, by another name.'),
    id: asked('The same, by another name.'),
  }),
  fromSnapshot: true,
  responses: { 200: { ...facade(WHATEVER, GENERIC_EXAMPLES), headers: ETAG }, 304: NOT_CHANGED },
  problems: ['identifier_missing', 'identifier_ambiguous', ...SNAPSHOT_PROBLEMS],
};

const genericPost: PublicSpec = {
  id: 'verifyByBody',
  method: 'post',
  path: VERIFY,
  tag: 'Verification',
  summary: 'Verify by any identifier, in a body',
  description:
    'Changes nothing. A field of one kind matches that kind only, `identifier` every kind. ' +
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
  responses: { 200: facade(WHATEVER, GENERIC_EXAMPLES) },
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
