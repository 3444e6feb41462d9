import * as z from 'zod';
import { impliedEvents } from '#protocol/history';
import { parseStrict } from '#protocol/json';
import type { Facade } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { publicEventSchema, type PublicEvent } from '#protocol/schemas/proof-view';
import type { PublicHistory } from '#protocol/schemas/public-views';
import { RECORD_KINDS, recordHistory } from '#protocol/snapshot/record';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import type { Resolved } from '../lookup/resolve.js';
import { integrityOf, membersOf, verificationOf } from './published.js';

const eventsSchema = z.array(publicEventSchema);

/** The status history of an artifact; empty when it did not resolve. */
export function historyOf(response: Facade, resolved: Resolved | null): PublicHistory {
  return {
    schema_version: SCHEMA.history,
    ...membersOf(response),
    events: resolved === null ? [] : eventsOn(resolved, response),
  };
}

function eventsOn(resolved: Resolved, response: Facade): PublicEvent[] {
  const { kind, record } = resolved;
  const recorded = recordHistory(record.bytes, record.id);
  const events =
    recorded === null
      ? eventsInBody(resolved, response)
      : eventsSchema.parse(parseStrict(recorded));
  return concerning(kind, events);
}

/** Derives the events from the body when the record has no history. */
function eventsInBody(resolved: Resolved, response: Facade): PublicEvent[] {
  // In records without a history, `verified_at` may be the time of a failed check. It is a
  // verification time only when every artifact asserts validity.
  const { verified_at: verifiedAt } = response.verification;
  const isAsserted = RECORD_KINDS.every(
    (kind) => verificationOf(resolved, kind)?.can_assert_validity !== false,
  );
  return impliedEvents(integrityOf(response), isAsserted ? verifiedAt : undefined);
}

/** An artifact depends on the earlier ones in the chain: it ends with them, and not with later ones. */
function concerning(kind: ArtifactKind, events: readonly PublicEvent[]): PublicEvent[] {
  const dependencies: readonly string[] = ARTIFACT_KINDS.slice(0, ARTIFACT_KINDS.indexOf(kind) + 1);
  return events.flatMap((event): PublicEvent[] => {
    if (event.event === 'revoked') return dependencies.includes(event.artifact) ? [event] : [];
    if (event.event !== 'expired') return [event];
    const artifacts = event.artifacts.filter((artifact) => dependencies.includes(artifact));
    return artifacts.length === 0 ? [] : [{ ...event, artifacts }];
  });
}
