import { fromHex, fromUtf8 } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { idsOf } from '#protocol/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { RECORD_KINDS, recordBody, recordHistory } from '#protocol/snapshot/record';
import {
  type ArtifactKind,
  NO_TRUST_CHAIN,
  isProofOnly,
  trustChainOf,
  type Decided,
  type Outcome,
} from '#protocol/status';
import { entriesPath, TILE_WIDTH, tilePath } from '#protocol/tiles';

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

/** Splits a record into its documents; null for bytes that are not a record of this id. */
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

/** The fixed facts of a proof, from its log entry and its AEP. */
export interface Facts extends Decided {
  entry: ProofEntry;
  leafIndex: number;
  environment: 'sandbox' | 'live';
  keyId: string;
  logOrigin: string;
}

export const LEVELS: Record<ArtifactKind, string> = {
  proof: 'PROOF_BACKED_PUBLIC_PROJECTION',
  certificate: 'CERTIFICATE_BACKED_PUBLIC_PROJECTION',
  passport: 'PASSPORT_BACKED_PUBLIC_PROJECTION',
  trust: 'TRUST_BACKED_PUBLIC_PROJECTION',
};

/**
 * The part of a lookup response that does not depend on its status, from section 16 of spec/answers.md.
 * Implemented independently of the publisher, so that a mistake there is found.
 *
 * @param width leaves in the tile when the proof was first published
 * @param outcome of the verification that the response shows
 */
export function expectedTail(facts: Facts, width: number, outcome: Outcome) {
  const { entry, effect, leafIndex } = facts;
  const tile = Math.floor(leafIndex / TILE_WIDTH);
  return {
    artifact: {
      execution_id: idsOf(entry.proof_id).execution_id,
      aep_hash: entry.aep_hash,
      proof_record_hash: entry.proof_record_hash,
      effect,
      environment: facts.environment,
    },
    trust_chain: outcome === 'pass' ? trustChainOf(facts) : NO_TRUST_CHAIN,
    mutation_allowed: false,
    serves_authoritative_truth: false,
    references: expectedReferences(entry.proof_id, facts),
    downloads: {
      log_entry: `/log/entry/${leafIndex}`,
      entry_bundle: `/log/${entriesPath(tile, width)}`,
      tile: `/log/${tilePath(0, tile, width)}`,
      checkpoint: '/log/checkpoint',
      inclusion_proof: `/log/proof/${leafIndex}`,
      keys: '/api/public/keys',
    },
    integrity: {
      aep_hash: entry.aep_hash,
      proof_record_hash: entry.proof_record_hash,
      log_origin: facts.logOrigin,
      leaf_index: leafIndex,
      key_id: facts.keyId,
      accepted_at: entry.time,
    },
  };
}

/** A denial or an outcome has no artifact besides its proof. */
function expectedReferences(proofId: string, decided: Decided) {
  const ids = idsOf(proofId);
  const { proof_id, registry_proof_id, registry_entry_id, execution_id } = ids;
  return isProofOnly(decided)
    ? { proof_id, registry_proof_id, registry_entry_id, execution_id }
    : { ...ids };
}

/** The first difference of two JSON documents, as a pointer with both values; null when equal. */
export function difference(expected: unknown, found: unknown, pointer = ''): string | null {
  if (Object.is(expected, found)) return null;
  if (isObject(expected) && isObject(found) && Array.isArray(expected) === Array.isArray(found)) {
    for (const name of new Set([...Object.keys(expected), ...Object.keys(found)])) {
      const inside = difference(expected[name], found[name], `${pointer}/${name}`);
      if (inside !== null) return inside;
    }
    return null;
  }
  return `${brief(expected)} at ${pointer || 'the top'}, found ${brief(found)}`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function brief(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 120);
}
