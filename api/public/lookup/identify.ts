import { isPackageId, isShareToken, resolveIdentifier, type IdField } from '#protocol/ids';

/** What a lookup can find something by. */
export type LookupName = IdField | 'share_token' | 'package_id';

export interface Identified {
  field: LookupName;
  /** The uuid in it, as hex; a share token whole. */
  key: string;
}

const PACKAGE_PREFIX = 'pkg_';

/** Which kind of id a string is; null for every other string. Purely syntactic. */
export function identify(text: string): Identified | null {
  const ofProof = resolveIdentifier(text);
  if (ofProof !== null) return { field: ofProof.matched_on, key: ofProof.proof_id };
  if (isShareToken(text)) return { field: 'share_token', key: text };
  if (isPackageId(text)) return { field: 'package_id', key: text.slice(PACKAGE_PREFIX.length) };
  return null;
}
