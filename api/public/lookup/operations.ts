import * as z from 'zod';
import {
  facadeSchema,
  lookupRequestSchema,
  notFoundSchema,
  historySchema,
  trustChainSchema,
  trustPackageSchema,
} from '#protocol/schemas/facade';
import { evidenceSchema } from '#protocol/evidence/document';
import { SCHEMA } from '#protocol/schemas/ids';
import { ARTIFACT_NOUNS, type ArtifactKind } from '#protocol/status';
import { snapshotEntrySchema } from '#protocol/schemas/log-entry';
import { type ResponseSpec, revalidated } from '../../openapi/types.js';
import { BODY_LIMIT, Problem, type ProblemCode } from '../http/problem.js';
import {
  EXAMPLE_ID,
  exampleResponse,
  examplePackageResponse,
  exampleUnresolved,
  exampleChain,
  exampleEvidence,
  exampleHistory,
  exampleTrustPackage,
  exampleUnresolvedHistory,
} from '../openapi/examples.js';
import type { Handler, Operation, PublicSpec } from '../operation.js';
import { postLookup, parameterOf, VERIFY } from './routes.js';
import { VIEW_PATHS, type ViewName } from './views.js';

const SNAPSHOT_PROBLEMS: readonly ProblemCode[] = [
  'snapshot_missing',
  'snapshot_expired',
  'snapshot_unreadable',
];

/** Answers a path that `handleLookup`, which the server calls first, does not recognize. */
const handledByFastPath: Handler = ({ req }) => {
  throw new Problem(
    'route_not_found',
    `The public API has no route ${req.url ?? ''}. See /docs for all routes.`,
  );
};

const ANY_VERDICT = 'The verdict, positive or not: check `can_assert_validity`.';

function verdictResponse(
  examples: Record<string, unknown>,
  description = ANY_VERDICT,
): ResponseSpec {
  return { description, content: { 'application/json': facadeSchema }, examples };
}

const lookup = (
  spec: Pick<PublicSpec, 'id' | 'path' | 'summary' | 'description' | 'responses'> &
    Partial<PublicSpec>,
): PublicSpec => ({
  method: 'get',
  tag: 'Verification',
  fromSnapshot: true,
  problems: SNAPSHOT_PROBLEMS,
  ...spec,
});

const RETRY_SOON_HEADER = {
  'Retry-After':
    'Only if the identifier does not resolve, but may resolve later: seconds to wait before trying again.',
};

const proofLookup = lookup({
  id: 'verifyProof',
  path: `${VERIFY}/proof/{proof_id}`,
  summary: 'Verify a proof',
  description:
    'Resolves identifiers of any age. Any text that is not the identifier of a published proof returns the ' +
    'not-found record; NOT_FOUND is valid as of the log size in `X-Svc-Tree-Size`.',
  takesRest: true,
  responses: {
    ...revalidated(verdictResponse({ resolved: exampleResponse('proof', 'proof_id') })),
    404: {
      description: 'The registry has published no such proof.',
      content: { 'application/json': notFoundSchema },
      headers: RETRY_SOON_HEADER,
    },
  },
});

interface ArtifactLookup {
  id: string;
  artifact: string;
  description: string;
  response: ResponseSpec;
}

const artifactLookup = (
  name: 'certificate' | 'passport' | 'trust',
  artifact: string,
  unresolved: string,
  alsoMatched: string,
): ArtifactLookup => ({
  id: `verify${name.charAt(0).toUpperCase()}${name.slice(1)}`,
  artifact,
  description: `Also resolves ${alsoMatched}.`,
  response: verdictResponse({
    resolved: exampleResponse(name, `${name}_id`),
    unresolved: exampleUnresolved(name, unresolved),
  }),
});

/** Lookups by the path segment between `verify/` and the identifier. */
const ARTIFACTS: Record<string, ArtifactLookup> = {
  certificate: artifactLookup(
    'certificate',
    'a certificate',
    'cert_unknown',
    '`cert_id`, `certificate_ref`, `trust_asset_id`',
  ),
  passport: artifactLookup(
    'passport',
    'a passport',
    'pass_unknown',
    '`passport_ref`, `execution_passport_id`',
  ),
  trust: artifactLookup(
    'trust',
    'a trust artifact',
    'trust_unknown',
    '`trust_ref`, `trust_asset_id`',
  ),
  'trust-asset': {
    id: 'verifyTrustAsset',
    artifact: 'a trust asset',
    description: 'Returns the trust artifact of the proof that the identifier belongs to.',
    response: verdictResponse({ resolved: exampleResponse('trust', 'trust_asset_id') }),
  },
  package: {
    id: 'verifyPackage',
    artifact: 'a trust package',
    description:
      'A package has the worst status of its members: REVOKED when any member is, else ' +
      'BACKEND_LOOKUP_REQUIRED when any member is, else EXPIRED when any member is, and ' +
      'TRUST_ESTABLISHED when all members are.',
    response: verdictResponse(
      { resolved: examplePackageResponse, unresolved: exampleUnresolved('trust', 'pkg_unknown') },
      'The verdict on the package and on each member.',
    ),
  },
};

const byPath = Object.entries(ARTIFACTS).map(([name, { id, artifact, description, response }]) =>
  lookup({
    id,
    path: `${VERIFY}/${name}/{${parameterOf(name)}}`,
    summary: `Verify ${artifact}`,
    description: `${description} Resolves identifiers of any age.`,
    responses: revalidated({ ...response, headers: RETRY_SOON_HEADER }),
  }),
);

const shareLookup = lookup({
  id: 'verifyShare',
  path: `${VERIFY}/share/{share_token}`,
  summary: 'Verify a shared artifact',
  description:
    'Returns the lookup response of the artifact or package that the token shares, whatever its age. ' +
    'Unknown, revoked and expired tokens get the same response. Caches must not store it.',
  responses: {
    200: {
      ...verdictResponse({
        resolved: exampleResponse('proof', 'share_token'),
        unresolved: exampleUnresolved('proof', 'share_unknown'),
      }),
      headers: RETRY_SOON_HEADER,
    },
  },
});

const aliases = ['certificate', 'passport', 'trust'].map((name) => {
  const { artifact, response } = ARTIFACTS[name]!;
  const end = `${name}/{${parameterOf(name)}}`;
  return lookup({
    id: `${name}Alias`,
    path: `/api/public/${end}`,
    tag: 'Artifacts',
    summary: `Verify ${artifact} by its short path`,
    description: `The same response as \`${VERIFY}/${end}\`, byte for byte.`,
    responses: revalidated({ ...response, headers: RETRY_SOON_HEADER }),
  });
});

const optionalText = (alias: string) => z.string().optional().describe(alias);

const GENERIC_NOTE =
  'Resolves `proof_id`, `registry_entry_id`, `execution_id`, `certificate_id`, `passport_id`, ' +
  '`trust_id`, `trust_asset_id`, `share_token` and `package_id`, but only of recent proofs. For an older ' +
  'artifact this route returns BACKEND_LOOKUP_REQUIRED; the path of its kind returns the verdict.';

const genericResponse = verdictResponse({
  resolved: exampleResponse('proof', 'execution_id'),
  unresolved: exampleUnresolved('proof', 'anything'),
});

const GENERIC_PROBLEMS: readonly ProblemCode[] = [
  'identifier_missing',
  'identifier_ambiguous',
  ...SNAPSHOT_PROBLEMS,
];

const genericGet = lookup({
  id: 'verifyIdentifier',
  path: VERIFY,
  summary: 'Verify by any identifier',
  description: `Give exactly one of the parameters. ${GENERIC_NOTE}`,
  query: z.object({
    identifier: optionalText('The identifier to look up.'),
    q: optionalText('Alias of `identifier`.'),
    id: optionalText('Alias of `identifier`.'),
  }),
  responses: revalidated({ ...genericResponse, headers: RETRY_SOON_HEADER }),
  problems: GENERIC_PROBLEMS,
});

const genericPost = lookup({
  id: 'verifyByBody',
  method: 'post',
  path: VERIFY,
  summary: 'Verify by any identifier in a body',
  description:
    'Read-only. A field of one kind resolves only ids of that kind; `identifier` resolves every kind. ' +
    GENERIC_NOTE,
  body: {
    schema: lookupRequestSchema,
    limit: BODY_LIMIT,
    examples: {
      proof: { schema_version: SCHEMA.lookupRequest, proof_id: EXAMPLE_ID.proof_id },
      any: { schema_version: SCHEMA.lookupRequest, identifier: EXAMPLE_ID.execution_id },
    },
  },
  responses: { 200: { ...genericResponse, headers: RETRY_SOON_HEADER } },
  problems: GENERIC_PROBLEMS,
});

export const LOOKUP_OPERATIONS: readonly Operation[] = [
  ...[proofLookup, ...byPath, shareLookup, genericGet].map((spec) => ({
    spec,
    handler: handledByFastPath,
  })),
  { spec: genericPost, handler: (exchange) => postLookup(exchange) },
  ...aliases.map((spec) => ({ spec, handler: handledByFastPath })),
];

const VIEWS: Record<
  ViewName,
  (kind: ArtifactKind) => Pick<PublicSpec, 'id' | 'summary' | 'description'> & {
    schema: z.ZodType;
    examples: Record<string, unknown>;
  }
> = {
  history: (kind) => ({
    id: `${kind}History`,
    summary: `Get the status history of a ${ARTIFACT_NOUNS[kind]}`,
    description:
      'The events of the proof and of every artifact that this artifact depends on, oldest first; empty ' +
      'when the lookup does not resolve.',
    schema: historySchema,
    examples: { resolved: exampleHistory(kind), unresolved: exampleUnresolvedHistory(kind) },
  }),
  chain: (kind) => ({
    id: `${kind}Chain`,
    summary: `Get the trust chain of a ${ARTIFACT_NOUNS[kind]}`,
    description: 'Each stage with its identifier and, where it has one, its verdict.',
    schema: trustChainSchema,
    examples: { resolved: exampleChain(kind) },
  }),
  package: () => ({
    id: 'trustPackage',
    summary: 'Get a trust artifact with its evidence',
    description:
      'Lookup response (`facade`), history, chain and the evidence that the proof is in the log, all from ' +
      'one snapshot. `evidence` is null when the lookup does not resolve.',
    schema: trustPackageSchema,
    examples: { resolved: exampleTrustPackage },
  }),
};

export const VIEW_OPERATIONS: readonly Operation[] = Object.entries(VIEW_PATHS).flatMap(
  ([kind, paths]) =>
    [...paths].map(([end, name]) => {
      const { schema, examples, ...view } = VIEWS[name](kind as ArtifactKind);
      const spec = lookup({
        ...view,
        path: `/api/public/${kind}/{${kind}_id}/${end}`,
        tag: 'Artifacts',
        responses: revalidated({
          description: 'The view, also when the lookup does not resolve.',
          content: { 'application/json': schema },
          examples,
          headers: RETRY_SOON_HEADER,
        }),
      });
      return { spec, handler: handledByFastPath };
    }),
);

const EVIDENCE_PATH = '/api/public/evidence';

const evidenceResponse = {
  description: 'The evidence, also when the identifier is not found.',
  content: { 'application/json': evidenceSchema.extend({ snapshot: snapshotEntrySchema }) },
  example: exampleEvidence,
  headers: RETRY_SOON_HEADER,
};

export const EVIDENCE_OPERATIONS: readonly Operation[] = [
  {
    spec: lookup({
      id: 'evidence',
      tag: 'Log',
      path: `${EVIDENCE_PATH}/{identifier}`,
      summary: 'Get the evidence of an answer',
      description:
        'Proves the answers about this identifier, or its absence, from the signed log. ' +
        'Resolves identifiers of any age.',
      responses: revalidated(evidenceResponse),
    }),
    handler: handledByFastPath,
  },
  {
    spec: lookup({
      id: 'evidenceByBody',
      method: 'post',
      tag: 'Log',
      path: EVIDENCE_PATH,
      summary: 'Get the evidence of an answer, with the identifier in the body',
      description: 'Read-only. The same as the path with the identifier.',
      body: {
        schema: lookupRequestSchema,
        limit: BODY_LIMIT,
        examples: {
          any: { schema_version: SCHEMA.lookupRequest, identifier: exampleEvidence.identifier },
        },
      },
      responses: { 200: evidenceResponse },
      problems: GENERIC_PROBLEMS,
    }),
    handler: (exchange) => postLookup(exchange, { view: 'evidence' }),
  },
];
