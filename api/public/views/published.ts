import { fromUtf8 } from '#protocol/bytes';
import type { Facade } from '#protocol/schemas/facade';
import { responseHead, unresolvedBody } from '#protocol/snapshot/head';
import { malformed } from '#protocol/snapshot/malformed';
import { recordBody } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';
import type { Resolved } from '../lookup/resolve.js';

/** The answer that the verify route gives, as a document: all views of an artifact are made of it. */
export function facadeOf(resolved: Resolved, requested: string): Facade {
  const { kind, matchedOn, body } = resolved;
  const head = responseHead(kind, requested, matchedOn);
  return parsed(head + fromUtf8(body.part) + fromUtf8(body.tail));
}

/** The same of a lookup that does not resolve. */
export function unresolvedFacade(kind: ArtifactKind, requested: string): Facade {
  return parsed(unresolvedBody(kind, requested));
}

/** What the record says of another artifact of the same proof; null when that has no verdict. */
export function verificationOf(
  { record, matchedOn }: Resolved,
  kind: ArtifactKind,
): Facade['verification'] | null {
  const body = recordBody(record.bytes, record.id, kind);
  return body && facadeOf({ kind, matchedOn, record, body }, '').verification;
}

type Integrity = Extract<Facade['integrity'], { leaf_index: number }>;

/** What a proof's body has to be checked by; a package has no place in the log. */
export function integrityOf({ integrity }: Facade): Integrity {
  if ('leaf_index' in integrity) return integrity as Integrity;
  throw malformed('a published body has no place in the log');
}

/** How every view begins. */
export function membersOf({ artifact_kind, identifier, lookup, verification }: Facade) {
  const { verification_status, can_assert_validity } = verification;
  return { artifact_kind, identifier, lookup, verification_status, can_assert_validity };
}

function parsed(text: string): Facade {
  // Whatever the publisher signed is relayed as it is.
  return JSON.parse(text) as Facade;
}
