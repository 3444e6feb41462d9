import { SCHEMA } from '../schemas/ids.js';
import { NO_TRUST_CHAIN, type ArtifactKind } from '../status.js';

/** The beginning of a public answer (spec/answers.md, section 16), the only part that depends on the request. */
export function responseHead(kind: ArtifactKind, requested: string, matchedOn: string): string {
  const identifier = JSON.stringify(requested);
  return (
    `{"schema_version":"${SCHEMA.facade}","artifact_kind":"${kind}","identifier":${identifier},` +
    `"lookup":{"requested":${identifier},"matched_on":"${matchedOn}"},`
  );
}

/** Members of every public response. */
export const PUBLIC_FLAGS = { mutation_allowed: false, serves_authoritative_truth: false } as const;

/** The response to an unresolved lookup, except on the proof route. */
export function unresolvedBody(kind: ArtifactKind, requested: string): string {
  return JSON.stringify({
    schema_version: SCHEMA.facade,
    artifact_kind: kind,
    identifier: requested,
    lookup: { requested, matched_on: null },
    verification: {
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      can_assert_validity: false,
      frontend_recomputed: false,
    },
    artifact: {},
    trust_chain: NO_TRUST_CHAIN,
    ...PUBLIC_FLAGS,
    references: {},
    downloads: {},
    integrity: {},
  });
}

/** The record of an unknown proof identifier, of spec/answers.md, section 16. */
export const NOT_FOUND_BODY = JSON.stringify({
  schema_version: SCHEMA.notFound,
  result: 'NOT_FOUND',
  verification_status: 'NOT_FOUND',
  can_assert_validity: false,
  honest_states: ['VERIFIED', 'NOT_FOUND', 'REVOKED', 'EXPIRED'],
  verdict_fabricated: false,
});
