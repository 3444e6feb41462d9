import { isPackageId, isShareToken, resolveIdentifier, type IdField } from './ids.js';
import type { LookupField } from './schemas/facade.js';
import type { ArtifactKind } from './status.js';

/** The lookups of the public API: which ids resolve, and to what (spec/answers.md, section 16). */

/** Placeholder for the kind of the artifact that a share token shares. */
export const SHARED = 'shared';

/** Packages are rendered and reported as trust artifacts. */
export const PACKAGE_KIND = 'trust' satisfies ArtifactKind;

/** The kinds of id that a lookup matches. */
export type LookupName = IdField | 'share_token' | 'package_id';

/** The kind of an id, by its syntax; null for any other text. */
export function lookupNameOf(text: string): LookupName | null {
  if (isShareToken(text)) return 'share_token';
  if (isPackageId(text)) return 'package_id';
  return resolveIdentifier(text)?.matched_on ?? null;
}

/** The ids that a route matches, and its response when no id matches. */
export interface VerdictRoute {
  /** The kind of artifact that each matched id resolves to. */
  matches: Partial<Record<LookupName, ArtifactKind | typeof SHARED>>;
  /** Whether the route covers recent proofs only. */
  windowed: boolean;
  /** The response when no id matches: "not found", or the unresolved response for an artifact kind. */
  unmatched: 'not-found' | ArtifactKind;
  /** Whether every identifier on the route counts as a share token, and so as a secret. */
  isSecret?: true;
}

const byPath = (kind: ArtifactKind, ...ids: LookupName[]): VerdictRoute => ({
  matches: Object.fromEntries(ids.map((id) => [id, kind])),
  windowed: false,
  unmatched: kind,
});

/** Lookups by URL path, which search all proofs, not only recent proofs. */
export const BY_PATH = {
  proof: { ...byPath('proof', 'proof_id'), unmatched: 'not-found' },
  certificate: byPath('certificate', 'certificate_id', 'certificate_ref', 'trust_asset_id'),
  passport: byPath('passport', 'passport_id', 'passport_ref', 'execution_passport_id'),
  trust: byPath('trust', 'trust_id', 'trust_ref', 'trust_asset_id'),
  'trust-asset': byPath('trust', 'trust_asset_id'),
  share: { ...byPath('proof'), matches: { share_token: SHARED }, isSecret: true },
  package: byPath(PACKAGE_KIND, 'package_id'),
} satisfies Record<string, VerdictRoute>;

/** The lookup by path for each syntax of identifiers. */
const FORMS: [form: RegExp, name: keyof typeof BY_PATH][] = [
  [/^[0-9a-f]{32}$/, 'proof'],
  [/^cert(?:ref)?_[0-9a-f]{32}$/, 'certificate'],
  [/^(?:pass|passref|execpass)_[0-9a-f]{32}$/, 'passport'],
  [/^trust(?:ref)?_[0-9a-f]{32}$/, 'trust'],
  [/^asset_[0-9a-f]{32}$/, 'trust-asset'],
  [/^share_[A-Za-z0-9_-]{1,64}$/, 'share'],
  [/^pkg_[0-9a-f]{32}$/, 'package'],
];

/** The lookup by path for an identifier; null if only the generic lookup matches it. */
export function pathLookupOf(identifier: string): keyof typeof BY_PATH | null {
  return FORMS.find(([form]) => form.test(identifier))?.[1] ?? null;
}

/** The query parameter of a generic lookup and of the verification page, with its aliases. */
export const QUERY_NAMES = ['identifier', 'q', 'id'] as const;

/** The ids that a generic lookup matches, and the artifact that each id names. */
const MATCHES = {
  proof_id: 'proof',
  registry_entry_id: 'proof',
  execution_id: 'proof',
  certificate_id: 'certificate',
  passport_id: 'passport',
  trust_id: 'trust',
  trust_asset_id: 'trust',
  share_token: SHARED,
  package_id: PACKAGE_KIND,
} as const satisfies VerdictRoute['matches'];

const generic: VerdictRoute = { matches: MATCHES, windowed: true, unmatched: 'proof' };

/** The route of a generic lookup: `identifier` matches every kind of id, other fields one kind each. */
export function routeFor(field: LookupField): VerdictRoute {
  if (field === 'identifier') return generic;
  const matches = { [field]: MATCHES[field] };
  return { ...generic, matches, ...(field === 'share_token' && { isSecret: true }) };
}
