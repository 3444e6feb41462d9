/**
 * A UUIDv7 (RFC 9562) as 32 lower-case hex characters. All other ids of a proof derive from its proof id.
 */
export type ProofId = string;

export const PROOF_ID_PATTERN = /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/;
export const SHARE_TOKEN_PATTERN = /^share_[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/;
export const PACKAGE_ID_PATTERN = /^pkg_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/;
export const BATCH_ID_PATTERN = /^batch_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/;

/** The id of a new proof in the log of shard 0, from a UUIDv7 in any form. */
export function newProofId(uuid: string): ProofId {
  const hex = uuid.replaceAll('-', '');
  return `${hex.slice(0, 13)}000${hex.slice(16)}`;
}

/**
 * The prefix of each id of a proof. `registry_proof_id` and `cert_id` are second names of
 * `proof_id` and `certificate_id`.
 */
export const ID_PREFIX = {
  proof_id: '',
  execution_id: 'exec_',
  registry_entry_id: 'reg_',
  certificate_id: 'cert_',
  certificate_ref: 'certref_',
  passport_id: 'pass_',
  passport_ref: 'passref_',
  execution_passport_id: 'execpass_',
  trust_id: 'trust_',
  trust_ref: 'trustref_',
  trust_asset_id: 'asset_',
} as const;

export type IdField = keyof typeof ID_PREFIX;

const FIELD_OF_PREFIX = new Map<string, IdField>(
  (Object.keys(ID_PREFIX) as IdField[]).map((field) => [ID_PREFIX[field], field]),
);

/** The time of a UUIDv7 in hex without hyphens (RFC 9562 §5.7), in milliseconds since 1970. */
export const uuidTime = (hex: string): number => Number.parseInt(hex.slice(0, 12), 16);

/**
 * The time at which a proof or package id was made, in milliseconds since 1970, from any of its identifiers;
 * null for every other text. An id can state any time, so the service accepts only ids that it made.
 */
export function timeOfId(text: string): number | null {
  const id = isPackageId(text) ? text.slice(-32) : resolveIdentifier(text)?.proof_id;
  return id === undefined ? null : uuidTime(id);
}

export function isProofId(text: string): boolean {
  return PROOF_ID_PATTERN.test(text);
}

export function isShareToken(text: string): boolean {
  return SHARE_TOKEN_PATTERN.test(text);
}

export function isPackageId(text: string): boolean {
  return PACKAGE_ID_PATTERN.test(text);
}

export function isBatchId(text: string): boolean {
  return BATCH_ID_PATTERN.test(text);
}

export function idsOf(proofId: ProofId) {
  return {
    proof_id: proofId,
    registry_proof_id: proofId,
    registry_entry_id: ID_PREFIX.registry_entry_id + proofId,
    execution_id: ID_PREFIX.execution_id + proofId,
    certificate_id: ID_PREFIX.certificate_id + proofId,
    cert_id: ID_PREFIX.certificate_id + proofId,
    certificate_ref: ID_PREFIX.certificate_ref + proofId,
    passport_id: ID_PREFIX.passport_id + proofId,
    passport_ref: ID_PREFIX.passport_ref + proofId,
    execution_passport_id: ID_PREFIX.execution_passport_id + proofId,
    trust_id: ID_PREFIX.trust_id + proofId,
    trust_ref: ID_PREFIX.trust_ref + proofId,
    trust_asset_id: ID_PREFIX.trust_asset_id + proofId,
  };
}

/**
 * The proof that an identifier names, and the kind of the id; null for every other string. Purely
 * syntactic: only the registry knows whether the proof exists.
 */
export function resolveIdentifier(text: string): { proof_id: ProofId; matched_on: IdField } | null {
  const cut = text.length - 32;
  if (cut < 0) return null;
  const matched_on = FIELD_OF_PREFIX.get(text.slice(0, cut));
  const proof_id = text.slice(cut);
  return matched_on !== undefined && isProofId(proof_id) ? { proof_id, matched_on } : null;
}
