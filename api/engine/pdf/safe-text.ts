import type { Covers } from './coverage.js';

/** A run of text with one style. */
export interface Piece {
  text: string;
  /** Written as its code point, in a style that document text never has. */
  escaped: boolean;
}

/** Letters, digits, punctuation and symbols: neither invisible nor combining. */
const IS_VISIBLE = /^[\p{L}\p{N}\p{P}\p{S}]$/u;
/** Left-to-right scripts without reordering or shaping. */
const LEFT_TO_RIGHT = /^[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Common}]$/u;
/** U+FFFC has no visible glyph in the font. */
const OBJECT_REPLACEMENT = '\ufffc';
/** Right-to-left blocks, because Unicode assigns their shared marks to Script=Common. */
const RIGHT_TO_LEFT =
  /^[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]$/u;

const LATIN = /^\p{Script=Latin}$/u;
const GREEK = /^\p{Script=Greek}$/u;
const CYRILLIC = /^\p{Script=Cyrillic}$/u;
const IN_WORD = /^[\p{L}\p{N}]$/u;
/** Homoglyphs of Latin letters and digits. */
const LOOKS_LATIN =
  /^[\u037f\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03ba\u03bf\u03dc\u03f2\u03f3\u03f9\u0405\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c-\u041e\u0420-\u0422\u0425\u0430\u0435\u043a\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04ae\u04bb\u04c0\u04cf\u051a-\u051d]$/u;
/** Homoglyphs of ASCII punctuation without a Unicode mapping to it. */
const LOOKS_ASCII = /^[\u2010\u2011\u201a\u2215\u2223\ua789\ua78c]$/u;

/**
 * Makes untrusted text unambiguous on the page. Escapes as `\u{…}`: characters without a glyph,
 * controls and right-to-left characters (reorder their neighbours), combining marks, repeated spaces
 * and homoglyphs. Also escapes a backslash that begins such a sequence, so that copied text has one
 * reading.
 */
export function safeText(text: string, covers: Covers): Piece[] {
  const characters = Array.from(text);
  const homoglyphs = homoglyphsIn(characters);
  const pieces: Piece[] = [];
  characters.forEach((character, at) => {
    const shown = !homoglyphs.has(at) && shownAsItself(characters, at, covers);
    const last = pieces.at(-1);
    if (!shown) pieces.push({ text: escapeOf(character), escaped: true });
    else if (last === undefined || last.escaped) pieces.push({ text: character, escaped: false });
    else last.text += character;
  });
  return pieces;
}

function shownAsItself(characters: readonly string[], at: number, covers: Covers): boolean {
  const character = characters[at] ?? '';
  if (character === ' ') return isVisible(characters[at - 1]) && isVisible(characters[at + 1]);
  if (character === '\\' && characters[at + 1] === 'u' && characters[at + 2] === '{') return false;
  return (
    IS_VISIBLE.test(character) &&
    LEFT_TO_RIGHT.test(character) &&
    !RIGHT_TO_LEFT.test(character) &&
    character !== OBJECT_REPLACEMENT &&
    !isVariant(character) &&
    covers(character.codePointAt(0) ?? 0)
  );
}

/** Whether it is a variant of another character, or looks like an ASCII one. */
function isVariant(character: string): boolean {
  if (character <= '\u007f') return false;
  const plain = character.normalize('NFKC');
  return (
    character.normalize('NFC') !== character ||
    (plain.length === 1 && plain <= '\u007f') ||
    LOOKS_ASCII.test(character)
  );
}

/**
 * Positions of Greek and Cyrillic letters that could pass for Latin ones: in mixed words, and in words
 * of homoglyphs only.
 */
function homoglyphsIn(characters: readonly string[]): Set<number> {
  const found = new Set<number>();
  const ofWord = (word: readonly number[]): void => {
    const some = (script: RegExp) => word.some((at) => script.test(characters[at] ?? ''));
    const foreign = word.filter((at) => {
      const character = characters[at] ?? '';
      return GREEK.test(character) || CYRILLIC.test(character);
    });
    const mixed = some(LATIN) || (some(GREEK) && some(CYRILLIC));
    if (mixed || foreign.every((at) => LOOKS_LATIN.test(characters[at] ?? ''))) {
      for (const at of foreign) found.add(at);
    }
  };
  let word: number[] = [];
  characters.forEach((character, at) => {
    if (IN_WORD.test(character)) word.push(at);
    else if (word.length > 0) {
      ofWord(word);
      word = [];
    }
  });
  ofWord(word);
  return found;
}

/** A space is visible only between two visible characters. */
function isVisible(neighbour: string | undefined): boolean {
  return neighbour !== undefined && IS_VISIBLE.test(neighbour);
}

function escapeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`;
}

/** Wraps at `columns` characters without breaking escapes. Escapes spaces at line edges, where they are invisible. */
export function wrapPieces(pieces: readonly Piece[], columns: number): Piece[][] {
  const cells = pieces.flatMap((piece) =>
    piece.escaped
      ? [piece]
      : Array.from(piece.text, (character) => ({ text: character, escaped: false })),
  );
  const lines: Piece[][] = [[]];
  let used = 0;
  cells.forEach((cell, at) => {
    const next = cells[at + 1];
    const isAtEdge = used === 0 || used >= columns || (next && used + 1 + widthOf(next) > columns);
    const shown = cell.text === ' ' && isAtEdge ? { text: escapeOf(' '), escaped: true } : cell;
    if (used > 0 && used + widthOf(shown) > columns) {
      lines.push([]);
      used = 0;
    }
    append(lines.at(-1)!, shown);
    used += widthOf(shown);
  });
  return lines;
}

function widthOf({ text, escaped }: Piece): number {
  return escaped ? text.length : 1;
}

function append(line: Piece[], piece: Piece): void {
  const last = line.at(-1);
  if (last === undefined || last.escaped || piece.escaped) line.push({ ...piece });
  else last.text += piece.text;
}
