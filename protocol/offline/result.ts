import type { Checkpoint } from '../checkpoint.js';
import type { Aep } from '../schemas/aep.js';
import type { LogEntry } from '../schemas/log-entry.js';

/** Everything that can be wrong with a document that is checked offline: one code for each defect. */
export const OFFLINE_FAULTS = [
  // the text, by the rules of strict JSON
  'invalid_utf8',
  'malformed_json',
  'duplicate_key',
  'lone_surrogate',
  'nul_character',
  'integer_out_of_range',
  'too_deep',
  // the form
  'malformed_export',
  'unknown_member',
  'wrong_schema_version',
  'wrong_payload_type',
  'not_one_signature',
  'malformed_base64',
  // its parts against each other
  'payload_not_canonical',
  'payload_mismatch',
  'proof_id_mismatch',
  'key_id_mismatch',
  'proof_record_mismatch',
  'request_hash_mismatch',
  'response_hash_mismatch',
  'entry_time_mismatch',
  'aep_hash_mismatch',
  'proof_record_hash_mismatch',
  // the signature and its key
  'bad_signature',
  'key_not_in_force',
  // the log
  'malformed_tlog_proof',
  'malformed_entry',
  'malformed_note',
  'malformed_checkpoint',
  'unknown_signer',
  'bad_checkpoint_signature',
  'wrong_origin',
  'tree_size_mismatch',
  'not_in_tree',
] as const;
export type OfflineFaultCode = (typeof OFFLINE_FAULTS)[number];

export interface OfflineFault {
  code: OfflineFaultCode;
  /** For people; may change. */
  detail: string;
  /** RFC 6901 JSON Pointer into the document, where the fault has a place in it. */
  pointer?: string;
}

/** What has to be pinned, or pinned as well, before anybody can tell. */
export const UNDECIDABLE_CAUSES = [
  'no_pinned_key',
  'signing_key_not_pinned',
  'no_pinned_log',
] as const;
export type UndecidableCause = (typeof UNDECIDABLE_CAUSES)[number];

export interface Undecidable {
  decidable: false;
  cause: UndecidableCause;
  /** For people; may change. */
  detail: string;
}

/** A leaf in the tree of a checkpoint that the pinned log signed. */
export interface Place {
  leafIndex: number;
  /** The checkpoint that vouches for the inclusion. */
  under: Checkpoint;
}

/**
 * What can be said of an export without the service. `authentic`: the hashes fit together and a
 * pinned key signed. `included`: besides, the entry is in the tree of a checkpoint that the pinned
 * log signed; absent when no log is pinned. Whether the proof has been revoked since nobody can know
 * offline, so there is no positive status.
 */
export type OfflineResult =
  | ({
      decidable: true;
      authentic: boolean;
      included?: boolean;
      /** What was signed; absent unless it is authentic. */
      aep?: Aep;
      /** `unknown since checkpoint <size>` when included, else `unknown`. */
      status: string;
      /** Empty, or what stopped the check. */
      faults: OfflineFault[];
    } & Partial<Place>)
  | Undecidable;

/**
 * What a tlog-proof says of a log entry: that it is in the tree, or not. It says nothing of who
 * signed the AEP behind the entry, which holds commitments only, so there is no `authentic`.
 */
export type TlogProofResult =
  | ({
      decidable: true;
      included: boolean;
      /** The entry that is in the tree; absent unless it is included. */
      entry?: LogEntry;
      status: string;
      faults: OfflineFault[];
    } & Partial<Place>)
  | Undecidable;

export function undecidable(cause: UndecidableCause, detail: string): Undecidable {
  return { decidable: false, cause, detail };
}

/** The place, or why there is none. */
export type Placed = { place: Place } | { fault: OfflineFault };

/** A place as both results tell it. */
export function toldPlace({ under, leafIndex }: Place): Place & { status: string } {
  return { under, leafIndex, status: `unknown since checkpoint ${under.size}` };
}
