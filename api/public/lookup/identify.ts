import { isPackageId, isShareToken, resolveIdentifier, type IdField } from '#protocol/ids';

/** The kinds of id that a lookup matches. */
export type LookupName = IdField | 'share_token' | 'package_id';

export interface Identified {
  field: LookupName;
  /** The UUID as hex, or the whole share token. */
  key: string;
}

const PACKAGE_PREFIX = 'pkg_';

/** Classifies an id by its syntax; null for any other text. */
export function identify(text: string): Identified | null {
  const ofProof = resolveIdentifier(text);
  if (ofProof !== null) return { field: ofProof.matched_on, key: ofProof.proof_id };
  if (isShareToken(text)) return { field: 'share_token', key: text };
  if (isPackageId(text)) return { field: 'package_id', key: text.slice(PACKAGE_PREFIX.length) };
  return null;
}
