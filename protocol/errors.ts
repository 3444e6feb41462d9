/** Reasons why the strict JSON reader rejects a text. */
export const STRICT_JSON_CODES = [
  'invalid_utf8',
  'malformed_json',
  'duplicate_key',
  'lone_surrogate',
  'nul_character',
  'integer_out_of_range',
  'too_deep',
] as const;

/**
 * The closed set of reasons why this package rejects input. Callers branch on the code; the message
 * is for display and may change.
 */
export type ProtocolErrorCode =
  | (typeof STRICT_JSON_CODES)[number]
  // encodings and identifiers
  | 'malformed_hex'
  | 'malformed_base64'
  | 'malformed_time'
  | 'malformed_key'
  | 'unusable_key'
  | 'key_id_mismatch'
  // documents
  | 'malformed_entry'
  | 'malformed_envelope'
  | 'malformed_snapshot'
  | 'malformed_record'
  // the log
  | 'out_of_range'
  | 'malformed_map_path'
  | 'malformed_map_page'
  | 'wrong_map_root'
  | 'malformed_tile'
  | 'malformed_note'
  | 'malformed_vkey'
  | 'malformed_checkpoint'
  | 'malformed_tlog_proof'
  | 'malformed_add_checkpoint'
  | 'malformed_policy'
  | 'quorum_not_met'
  | 'malformed_origin'
  | 'wrong_origin'
  | 'unknown_signer'
  | 'bad_signature'
  // evidence
  | 'malformed_evidence'
  | 'wrong_identifier'
  | 'not_in_tree'
  | 'uncovered_record'
  | 'evidence_ahead'
  | 'evidence_expired'
  | 'evidence_too_old'
  | 'answer_mismatch';

export interface ProtocolErrorOptions {
  /** RFC 6901 JSON Pointer to the offending value; '' is the whole document. */
  pointer?: string;
  cause?: unknown;
}

export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  readonly code: ProtocolErrorCode;
  readonly pointer?: string;

  constructor(code: ProtocolErrorCode, message: string, options: ProtocolErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    if (options.pointer !== undefined) this.pointer = options.pointer;
  }
}

/** A function that makes errors with this code. */
export const errorOf =
  (code: ProtocolErrorCode) =>
  (message: string, options?: ProtocolErrorOptions): ProtocolError =>
    new ProtocolError(code, message, options);

export function attempt<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}
