import type { Checkpoint } from '../checkpoint.js';
import { ProtocolError, STRICT_JSON_CODES } from '../errors.js';
import type { JsonValue } from '../json.js';
import type { Aep } from '../schemas/aep.js';
import type { LogEntry } from '../schemas/log-entry.js';

/** The defects that an offline check reports. */
export const OFFLINE_FAULTS = [
  // strict JSON
  ...STRICT_JSON_CODES,
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
  'entry_mismatch',
  'aep_hash_mismatch',
  'proof_record_hash_mismatch',
  'disclosure_mismatch',
  'approval_mismatch',
  'receipt_mismatch',
  'key_not_activated',
  'approver_not_activated',
  // signature and key
  'bad_signature',
  'bad_approval_signature',
  'key_not_in_force',
  // log
  'malformed_tlog_proof',
  'malformed_entry',
  'malformed_note',
  'malformed_checkpoint',
  'unknown_signer',
  'bad_checkpoint_signature',
  'wrong_origin',
  'quorum_not_met',
  'tree_size_mismatch',
  'not_in_tree',
] as const;
export type OfflineFaultCode = (typeof OFFLINE_FAULTS)[number];

export interface OfflineFault {
  code: OfflineFaultCode;
  /** For display: the wording may change. */
  detail: string;
  /** RFC 6901 JSON Pointer into the document, if the fault has a location. */
  pointer?: string;
}

/** Converts a ProtocolError to a fault; `otherwise` replaces a code that is not a fault code. */
export function faultOf(error: unknown, otherwise: OfflineFaultCode): OfflineFault {
  if (!(error instanceof ProtocolError)) throw error;
  const code = OFFLINE_FAULTS.find((one) => one === error.code) ?? otherwise;
  const { message: detail, pointer } = error;
  return pointer === undefined ? { code, detail } : { code, detail, pointer };
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
  /** For display: the wording may change. */
  detail: string;
}

export interface Place {
  leafIndex: number;
  under: Checkpoint;
}

/**
 * Result of checking an export offline. `authentic`: the hashes are consistent, and a pinned key, or a key to which a
 * pinned root delegated, signed the AEP. `included`: in addition, the entry is in the tree of a checkpoint that the
 * pinned log signed; absent when no log is pinned. Revocation cannot be checked offline, so no positive status exists.
 */
export type OfflineResult =
  | ({
      decidable: true;
      authentic: boolean;
      included?: boolean;
      /** The signed AEP; absent unless authentic. */
      aep?: Aep;
      /** The disclosed values by name, and the number of withheld ones. Absent unless authentic. */
      disclosed?: Record<string, JsonValue>;
      withheld?: number;
      /**
       * The status in the document if it asserts no validity, such as `REVOKED`. `EXPIRED` when the
       * validity of the proof has ended. Else `unknown since checkpoint <size>` when included, else
       * `unknown`.
       */
      status: string;
      /**
       * `unknown` when a pinned root delegated to the key: the document does not show whether the key signed
       * more than its `max_proofs` or was compromised. Absent for a pinned key.
       */
      keyState?: 'unknown';
      /** The fault that ended the check; empty without a fault. */
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
      /** The proved entry; absent unless included. */
      entry?: LogEntry;
      status: string;
      faults: OfflineFault[];
    } & Partial<Place>)
  | Undecidable;

export function undecidable(cause: UndecidableCause, detail: string): Undecidable {
  return { decidable: false, cause, detail };
}

export function placeFields({ under, leafIndex }: Place): Place & { status: string } {
  return { under, leafIndex, status: `unknown since checkpoint ${under.size}` };
}
