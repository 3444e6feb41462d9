/** Rounds of percent-decoding; a repeatedly encoded percent sign (%2525…) takes one round. */
const MAX_ROUNDS = 5;

/**
 * Whether a text may contain a share token, in any case and encoding. A token is a bearer secret, so the
 * response must not enter a shared cache.
 */
export function mayHoldToken(text: string): boolean {
  const all = text.includes('%') ? spellings(text) : [text];
  return all.some((spelling) => /share_/i.test(spelling));
}

/** The text and its repeated percent-decodings. */
function spellings(text: string): string[] {
  const found = [text];
  for (let round = 1; round < MAX_ROUNDS; round++) {
    const before = found.at(-1)!;
    if (!before.includes('%')) break;
    // Tokens are ASCII, so decoding single bytes is enough; invalid encodings stay.
    found.push(
      before
        .replace(/%(?:25)+/g, '%')
        .replace(/%([0-9a-f]{2})/gi, (_all, hex: string) => String.fromCharCode(parseInt(hex, 16))),
    );
  }
  return found;
}
