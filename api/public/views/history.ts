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

/** What became of an artifact; nothing when it did not resolve. */
export function historyOf(facade: Facade, resolved: Resolved | null): PublicHistory {
  return {
    schema_version: SCHEMA.history,
    ...membersOf(facade),
    events: resolved === null ? [] : eventsOn(resolved, facade),
  };
}

function eventsOn(resolved: Resolved, facade: Facade): PublicEvent[] {
  const { kind, record } = resolved;
  const recorded = recordHistory(record.bytes, record.id);
  const events =
    recorded === null ? eventsInBody(resolved, facade) : eventsSchema.parse(parseStrict(recorded));
  return concerning(kind, events);
}

/** What became of a proof whose record has no history: its body says all of it. */
function eventsInBody(resolved: Resolved, facade: Facade): PublicEvent[] {
  // Where something is not asserted, of any kind, the time may be that at which it was found out:
  // records were written so before there were histories.
  const { verified_at: verifiedAt } = facade.verification;
  const isAsserted = RECORD_KINDS.every(
    (kind) => verificationOf(resolved, kind)?.can_assert_validity !== false,
  );
  return impliedEvents(integrityOf(facade), isAsserted ? verifiedAt : undefined);
}

/** An artifact rests on those before it: what ended one of these ended it, and nothing else did. */
function concerning(kind: ArtifactKind, events: readonly PublicEvent[]): PublicEvent[] {
  const restsOn: readonly string[] = ARTIFACT_KINDS.slice(0, ARTIFACT_KINDS.indexOf(kind) + 1);
  return events.flatMap((event): PublicEvent[] => {
    if (event.event === 'revoked') return restsOn.includes(event.artifact) ? [event] : [];
    if (event.event !== 'expired') return [event];
    const artifacts = event.artifacts.filter((artifact) => restsOn.includes(artifact));
    return artifacts.length === 0 ? [] : [{ ...event, artifacts }];
  });
}
