import { fromUtf8 } from '#protocol/bytes';
import type { Facade } from '#protocol/schemas/facade';
import { responseHead, unresolvedBody } from '#protocol/snapshot/head';
import { malformed } from '#protocol/snapshot/malformed';
import { recordBody } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';
import type { Resolved } from '../lookup/resolve.js';

/** The response of the verify route as a document; the views are derived from it. */
export function lookupResponse(resolved: Resolved, requested: string): Facade {
  const { kind, matchedOn, body } = resolved;
  const head = responseHead(kind, requested, matchedOn);
  return parsed(head + fromUtf8(body.part) + fromUtf8(body.tail));
}

export function unresolvedResponse(kind: ArtifactKind, requested: string): Facade {
  return parsed(unresolvedBody(kind, requested));
}

/** The verdict on another artifact of the same proof; null without one. */
export function verificationOf(
  { record, matchedOn }: Resolved,
  kind: ArtifactKind,
): Facade['verification'] | null {
  const body = recordBody(record.bytes, record.id, kind);
  return body && lookupResponse({ kind, matchedOn, record, body }, '').verification;
}

type Integrity = Extract<Facade['integrity'], { leaf_index: number }>;

/** The integrity members of a proof; throws for a package, which has no log entry. */
export function integrityOf({ integrity }: Facade): Integrity {
  if ('leaf_index' in integrity) return integrity as Integrity;
  throw malformed('a published body lacks its leaf index');
}

/** The members that all views share. */
export function membersOf({ artifact_kind, identifier, lookup, verification }: Facade) {
  const { verification_status, can_assert_validity } = verification;
  return { artifact_kind, identifier, lookup, verification_status, can_assert_validity };
}

function parsed(text: string): Facade {
  // Relayed without validation: the publisher signed it.
  return JSON.parse(text) as Facade;
}
