import { VERIFY } from '../lookup/routes.js';

/** In UTF-16 code units; the longest valid identifier has 49. */
export const MAX_IDENTIFIER = 1024;

/** The lookup route for each form of identifier; any other text goes to the generic lookup. */
const ROUTES: [form: RegExp, route: string][] = [
  [/^[0-9a-f]{32}$/, 'proof'],
  [/^cert(?:ref)?_[0-9a-f]{32}$/, 'certificate'],
  [/^(?:pass|passref|execpass)_[0-9a-f]{32}$/, 'passport'],
  [/^trust(?:ref)?_[0-9a-f]{32}$/, 'trust'],
  [/^asset_[0-9a-f]{32}$/, 'trust-asset'],
  [/^share_[A-Za-z0-9_-]{1,64}$/, 'share'],
  [/^pkg_[0-9a-f]{32}$/, 'package'],
];

/** The public JSON URL whose verdict the page shows. */
export function lookupUrl(identifier: string): string {
  const route = ROUTES.find(([form]) => form.test(identifier))?.[1];
  if (route === undefined) return `${VERIFY}?identifier=${encodeURIComponent(identifier)}`;
  return `${VERIFY}/${route}/${identifier}`;
}

/** The URL of the verdict page, relative to `base`. */
export function pageUrl(identifier: string, base = ''): string {
  return `${base}/?id=${encodeURIComponent(identifier)}`;
}

/**
 * The proof id inside an execution or registry entry id. Those ids resolve only among recent proofs;
 * the proof id always resolves.
 */
export function proofBehind(identifier: string): string | null {
  return /^(?:exec|reg)_([0-9a-f]{32})$/.exec(identifier)?.[1] ?? null;
}

/** Returns the text when it is a path on this origin, else null: no link leads to another origin. */
export function ownPath(text: string): string | null {
  return /^\/[A-Za-z0-9._~\-/]*$/.test(text) && !text.startsWith('//') ? text : null;
}
