import { expect } from 'vitest';
import type { Facade } from '#api/public/facade';
import { directorySource } from '#api/public/snapshot/source';
import { fromHex, fromUtf8 } from '#protocol/bytes';
import { plainEvents } from '#protocol/history';
import type { Facade as FacadeBody } from '#protocol/schemas/facade';
import { publicEventSchema, type PublicEvent } from '#protocol/schemas/proof-view';
import { runLookup } from '#protocol/snapshot/find';
import { recordBody, recordHistory } from '#protocol/snapshot/record';
import { START } from './snapshot.js';

/** The record of a proof as a facade over the directory finds it now. */
export async function publishedRecord(
  facade: Facade,
  directory: string,
  proofId: string,
): Promise<Uint8Array> {
  await facade.follower.refresh();
  if (facade.follower.refusal !== null) throw new Error(facade.follower.refusal);
  const source = directorySource(directory);
  try {
    const lookup = facade.follower.current!.proof(proofId, 0);
    return (await runLookup(lookup, (wanted) => source.read(wanted)))!.bytes;
  } finally {
    source.close();
  }
}

/** What a record has about the proof itself. */
export function proofBodyIn(
  record: Uint8Array,
  proofId: string,
): Pick<FacadeBody, 'verification'> & {
  integrity: { accepted_at: string; leaf_index: number };
} {
  const { part, tail } = recordBody(record, fromHex(proofId), 'proof')!;
  return JSON.parse(`{${fromUtf8(part)}${fromUtf8(tail)}`) as ReturnType<typeof proofBodyIn>;
}

/** The events in a record; null when it has no history. */
export function historyIn(record: Uint8Array, proofId: string): PublicEvent[] | null {
  const history = recordHistory(record, fromHex(proofId));
  if (history === null) return null;
  const events = JSON.parse(fromUtf8(history)) as PublicEvent[];
  return events.map((event) => publicEventSchema.parse(event));
}

/** What the public can read in a record of either version. */
export function eventsIn(record: Uint8Array, proofId: string): PublicEvent[] {
  const { verification, integrity } = proofBodyIn(record, proofId);
  return historyIn(record, proofId) ?? plainEvents(integrity, verification.verified_at);
}

/** Without the size of the log, which not every record tells. */
export function unsized(events: readonly PublicEvent[]): PublicEvent[] {
  return events.map((event) =>
    event.event === 'verified' ? { event: event.event, at: event.at } : event,
  );
}

/** Each as `event at-in-ms detail`, without the two that every proof begins with. */
export function toldIn(history: PublicEvent[] | null): string[] {
  const [accepted, appended, ...events] = history ?? [];
  expect([accepted?.event, appended?.event]).toEqual(['accepted', 'appended']);
  return events.map((event) => {
    const at = 'at' in event ? Date.parse(event.at) - START : '';
    const detail =
      event.event === 'revoked'
        ? event.artifact
        : event.event === 'expired'
          ? event.artifacts.join(',')
          : event.event === 'failed'
            ? event.checks.join(',')
            : '';
    return `${event.event} ${at} ${detail}`.trim();
  });
}
