import { fromHex, fromUtf8 } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { RECORD_KINDS, recordBody, recordHistory } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';

/** The part of a lookup response that differs by kind. */
export interface PublishedPart {
  verification: {
    verification_status: string;
    can_assert_validity: boolean;
    frontend_recomputed: boolean;
    verified_at?: string;
  };
  artifact: Record<string, unknown>;
}

/** A record split into its documents. */
export interface PublishedRecord {
  parts: Partial<Record<ArtifactKind, PublishedPart>>;
  /** The shared part of all kinds; null when the id has no published content. */
  tail: Record<string, unknown> | null;
  /** The status history; null when the body contains it. */
  history: PublicEvent[] | null;
}

/** Null for bytes that are not a record of this id. */
export function readRecord(record: Uint8Array, id: string): PublishedRecord | null {
  try {
    return takenApart(record, id);
  } catch (error) {
    if (error instanceof ProtocolError || error instanceof SyntaxError) return null;
    throw error;
  }
}

function takenApart(record: Uint8Array, id: string): PublishedRecord {
  const wanted = fromHex(id);
  const parts: PublishedRecord['parts'] = {};
  let tail: PublishedRecord['tail'] = null;
  for (const kind of RECORD_KINDS) {
    const body = recordBody(record, wanted, kind);
    if (body === null) continue;
    // The part ends inside the artifact object, which the tail continues.
    parts[kind] = JSON.parse(`{${fromUtf8(body.part)}"":0}}`) as PublishedPart;
    delete parts[kind].artifact[''];
    tail ??= JSON.parse(`{"artifact":{${fromUtf8(body.tail)}`) as Record<string, unknown>;
  }
  const history = recordHistory(record, wanted);
  return {
    parts,
    tail,
    history: history === null ? null : (JSON.parse(fromUtf8(history)) as PublicEvent[]),
  };
}
