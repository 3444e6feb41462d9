import { utf8 } from '#protocol/bytes';
import { buildEvidence } from '#protocol/evidence/build';
import { evidenceSchema } from '#protocol/evidence/document';
import { routeFor } from '#protocol/lookup-routes';
import { lookupRequestSchema } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { snapshotEntrySchema } from '#protocol/schemas/log-entry';
import { nativeSha256 } from '#runtime/crypto/node';
import { CACHE_PRIVATE, CACHE_VERDICT, hashTag, JSON_TYPE, send } from '../http/answer.js';
import { BODY_LIMIT } from '../http/problem.js';
import { exampleEvidence } from '../openapi/examples.js';
import { revalidated, type Exchange, type Operation } from '../operation.js';
import { currentValidSnapshot } from '../snapshot/poller.js';
import { SNAPSHOT_PROBLEMS } from './operations.js';
import { isSecret } from './resolve.js';
import { withBody, type LookupTarget } from './routes.js';

const PATH = '/api/public/evidence';

/** Sends the evidence of the answer about an identifier, found or not. */
async function sendEvidence(exchange: Exchange, { route, requested }: LookupTarget): Promise<void> {
  const snapshot = currentValidSnapshot(exchange.ctx);
  const { location } = snapshot.opened;
  const evidence = await buildEvidence(nativeSha256, requested, (query) => snapshot.search(query), {
    snapshot: snapshot.entry,
    tlogProof: location.tlog_proof,
  });
  const body = utf8(JSON.stringify(evidence));
  const secret = isSecret(route, requested);
  send(exchange, snapshot, {
    status: 200,
    type: JSON_TYPE,
    cache: secret ? CACHE_PRIVATE : CACHE_VERDICT,
    body,
    ...(!secret && { etag: hashTag(body) }),
  });
}

const response = {
  description: 'The evidence, also when the identifier is not found.',
  content: { 'application/json': evidenceSchema.extend({ snapshot: snapshotEntrySchema }) },
  example: exampleEvidence,
};

const spec = {
  tag: 'Log',
  fromSnapshot: true,
  problems: SNAPSHOT_PROBLEMS,
} as const;

export const EVIDENCE_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      ...spec,
      id: 'evidence',
      method: 'get',
      path: `${PATH}/{identifier}`,
      summary: 'Get the evidence of an answer',
      description:
        'Proves from the signed log what the lookups of this identifier answer, also that it is absent. ' +
        'Covers the whole history.',
      responses: revalidated(response),
    },
    handler: (exchange, requested) =>
      sendEvidence(exchange, { route: routeFor('identifier'), requested }),
  },
  {
    spec: {
      ...spec,
      id: 'evidenceByBody',
      method: 'post',
      path: PATH,
      summary: 'Get the evidence of an answer by a body',
      description: 'Read-only, and as the path with the identifier.',
      body: {
        schema: lookupRequestSchema,
        limit: BODY_LIMIT,
        examples: {
          any: { schema_version: SCHEMA.lookupRequest, identifier: exampleEvidence.identifier },
        },
      },
      responses: { 200: response },
      problems: ['identifier_missing', 'identifier_ambiguous', ...SNAPSHOT_PROBLEMS],
    },
    handler: (exchange) => withBody(exchange, (target) => sendEvidence(exchange, target)),
  },
];
