/**
 * Share tokens in what was asked. Whoever has a token sees what it shows, so an answer about one is
 * for nobody's cache, however it is spelled.
 */

/** How often a text is decoded at most. Percent signs that are encoded over and over count once. */
const ROUNDS = 5;

/** Whether there may be a share token in a text, in whatever letter case and percent-encoded. */
export function mayHoldToken(text: string): boolean {
  // Nearly always there is nothing to decode.
  const all = text.includes('%') ? spellings(text) : [text];
  return all.some((spelling) => /share_/i.test(spelling));
}

/** A text as it is, and what it decodes to, as far as it does. */
function spellings(text: string): string[] {
  const found = [text];
  for (let round = 1; round < ROUNDS; round++) {
    const before = found.at(-1)!;
    if (!before.includes('%')) break;
    // Tokens are ASCII, so single bytes are enough; what is no encoding stays as it is.
    found.push(
      before
        .replace(/%(?:25)+/g, '%')
        .replace(/%([0-9a-f]{2})/gi, (_all, hex: string) => String.fromCharCode(parseInt(hex, 16))),
    );
  }
  return found;
}
