const SHOWN = 120;

/**
 * Text from outside, as it may stand on the page: not longer than a few lines, and without what is
 * invisible or turns the text after it around. Escaping is not done here but by `html`.
 */
export function shown(text: string): string {
  const clean = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\u{FFFD}');
  const chars = Array.from(clean);
  return chars.length <= SHOWN ? clean : `${chars.slice(0, SHOWN).join('')}…`;
}

/** A path on this origin; null for everything else that a link could lead to. */
export function ownPath(text: string): string | null {
  return /^\/[A-Za-z0-9._~\-/]*$/.test(text) && !text.startsWith('//') ? text : null;
}
