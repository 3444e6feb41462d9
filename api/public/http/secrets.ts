/**
 * Share tokens in what was asked. Whoever has a token sees what it shows, so an answer about one is
 * for nobody's cache and its text for nobody's log, however it is spelled.
 */

/** How often a text is decoded at most. Percent signs that are encoded over and over count once. */
const ROUNDS = 5;
/** The random part of a token, also without what stands in front of it. */
const RANDOM_PART = /[A-Za-z0-9_-]{43}/;
const SEPARATORS = /([/?&=;#,])/;
const MASK = '[not logged]';

/** Whether there may be a share token in a text, in whatever letter case and percent-encoded. */
export function mayHoldToken(text: string): boolean {
  // Nearly always there is nothing to decode.
  const all = text.includes('%') ? spellings(text) : [text];
  return all.some((spelling) => /share_/i.test(spelling));
}

/**
 * A URL for the log. From the first piece on that is about sharing, or as long as the random part of
 * a token, nothing is told.
 */
export function maskedUrl(url: string): string {
  const pieces = url.split(SEPARATORS);
  const first = pieces.findIndex((piece) =>
    spellings(piece).some((spelling) => /share/i.test(spelling) || RANDOM_PART.test(spelling)),
  );
  return first < 0 ? url : pieces.slice(0, first).join('') + MASK;
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
