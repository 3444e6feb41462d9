const MAX_SHOWN = 120;

/**
 * Makes external text safe to display: truncated, and without invisible characters or bidi overrides.
 * `html` does the escaping.
 */
export function shown(text: string): string {
  const clean = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\u{FFFD}');
  const chars = Array.from(clean);
  return chars.length <= MAX_SHOWN ? clean : `${chars.slice(0, MAX_SHOWN).join('')}…`;
}

/** Returns the text when it is a path on this origin, else null: no link leads to another origin. */
export function ownPath(text: string): string | null {
  return /^\/[A-Za-z0-9._~\-/]*$/.test(text) && !text.startsWith('//') ? text : null;
}
