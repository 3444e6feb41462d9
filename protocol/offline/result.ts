import type { Checkpoint } from '../checkpoint.js';
import type { Aep } from '../schemas/aep.js';
import type { LogEntry } from '../schemas/log-entry.js';

/** The defects that an offline check reports. */
export const OFFLINE_FAULTS = [
  // strict JSON
  'invalid_utf8',
  'malformed_json',
  'duplicate_key',
  'lone_surrogate',
  'nul_character',
  'integer_out_of_range',
  'too_deep',
  // schema
  'malformed_export',
  'unknown_member',
  'wrong_schema_version',
  'wrong_payload_type',
  'not_one_signature',
  'malformed_base64',
  // consistency of the parts
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
  // signature and key
  'bad_signature',
  'key_not_in_force',
  // log
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
  /** For display; may change. */
  detail: string;
  /** RFC 6901 JSON Pointer into the document, if the fault has a location. */
  pointer?: string;
}

/** Reasons why the pins do not suffice for a decision. */
export const UNDECIDABLE_CAUSES = [
  'no_pinned_key',
  'signing_key_not_pinned',
  'no_pinned_log',
] as const;
export type UndecidableCause = (typeof UNDECIDABLE_CAUSES)[number];

export interface Undecidable {
  decidable: false;
  cause: UndecidableCause;
  /** For display; may change. */
  detail: string;
}

export interface Place {
  leafIndex: number;
  under: Checkpoint;
}

/**
 * Result of checking an export offline. `authentic`: the hashes are consistent and a pinned key
 * signed. `included`: in addition, the entry is in the tree of a checkpoint that the pinned log
 * signed; absent when no log is pinned. Revocation cannot be checked offline, so no positive status
 * exists.
 */
export type OfflineResult =
  | ({
      decidable: true;
      authentic: boolean;
      included?: boolean;
      /** Absent unless authentic. */
      aep?: Aep;
      /** `unknown since checkpoint <size>` when included, else `unknown`. */
      status: string;
      /** Empty, or the fault that ended the check. */
      faults: OfflineFault[];
    } & Partial<Place>)
  | Undecidable;

/**
 * Result of checking a tlog-proof of a log entry. The entry holds commitments only, so this does
 * not establish who signed the AEP, and `authentic` does not exist.
 */
export type TlogProofResult =
  | ({
      decidable: true;
      included: boolean;
      /** Absent unless included. */
      entry?: LogEntry;
      status: string;
      faults: OfflineFault[];
    } & Partial<Place>)
  | Undecidable;

export function undecidable(cause: UndecidableCause, detail: string): Undecidable {
  return { decidable: false, cause, detail };
}

export type Placed = { place: Place } | { fault: OfflineFault };

export function placeFields({ under, leafIndex }: Place): Place & { status: string } {
  return { under, leafIndex, status: `unknown since checkpoint ${under.size}` };
}
