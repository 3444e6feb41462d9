import { SCHEMA } from '../schemas/ids.js';
import { NO_TRUST_CHAIN, type ArtifactKind } from '../status.js';

/**
 * The one part of a public body that depends on what was asked. It is put in front of the stored
 * part and tail of a record: head ‖ part ‖ tail is the JSON document of spec 2.1.
 */
export function responseHead(kind: ArtifactKind, requested: string, matchedOn: string): string {
  const asked = JSON.stringify(requested);
  return (
    `{"schema_version":"${SCHEMA.facade}","artifact_kind":"${kind}","identifier":${asked},` +
    `"lookup":{"requested":${asked},"matched_on":"${matchedOn}"},`
  );
}

/** True of every public answer: nothing can be changed here, and nothing here is an authority. */
export const PUBLIC_FLAGS = { mutation_allowed: false, serves_authoritative_truth: false } as const;

/** The answer to a lookup that did not resolve, elsewhere than on the proof route (spec 7). */
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

/** The record of an unknown proof identifier, exactly spec 2.2. */
export const NOT_FOUND_BODY = JSON.stringify({
  schema_version: SCHEMA.notFound,
  result: 'NOT_FOUND',
  verification_status: 'NOT_FOUND',
  can_assert_validity: false,
  honest_states: ['VERIFIED', 'NOT_FOUND', 'REVOKED', 'EXPIRED'],
  verdict_fabricated: false,
});
