import { VERIFY } from '../lookup/routes.js';

/** What a person may send as an identifier, in UTF-16 code units; the longest real one has 49. */
export const MAX_IDENTIFIER = 1024;

/** Which lookup an identifier asks for, by how it begins. Everything else is a generic lookup. */
const ROUTES: [form: RegExp, route: string][] = [
  [/^[0-9a-f]{32}$/, 'proof'],
  [/^cert(?:ref)?_[0-9a-f]{32}$/, 'certificate'],
  [/^(?:pass|passref|execpass)_[0-9a-f]{32}$/, 'passport'],
  [/^trust(?:ref)?_[0-9a-f]{32}$/, 'trust'],
  [/^asset_[0-9a-f]{32}$/, 'trust-asset'],
  [/^share_[A-Za-z0-9_-]{1,64}$/, 'share'],
  [/^pkg_[0-9a-f]{32}$/, 'package'],
];

/** The JSON lookup whose verdict the page relays, as a URL that anyone can ask as well. */
export function lookupUrl(identifier: string): string {
  const route = ROUTES.find(([form]) => form.test(identifier))?.[1];
  if (route === undefined) return `${VERIFY}?identifier=${encodeURIComponent(identifier)}`;
  return `${VERIFY}/${route}/${identifier}`;
}

/** The page about an identifier, relative to `base`. */
export function pageUrl(identifier: string, base = ''): string {
  return `${base}/?id=${encodeURIComponent(identifier)}`;
}

/**
 * The proof that an execution or registry entry id names by its form. Such ids resolve among recent
 * proofs only, the proof's own always.
 */
export function proofBehind(identifier: string): string | null {
  return /^(?:exec|reg)_([0-9a-f]{32})$/.exec(identifier)?.[1] ?? null;
}
