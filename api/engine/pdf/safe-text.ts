import type { Covers } from './coverage.js';

/** A stretch of a text as the paper shows it. */
export interface Piece {
  text: string;
  /** Written as its code point, in a style that no text can take on by itself. */
  escaped: boolean;
}

/** Letters, digits, punctuation and symbols: neither invisible nor joined to what stands before. */
const STANDS_ALONE = /^[\p{L}\p{N}\p{P}\p{S}]$/u;
/** Scripts that are set from left to right, one character after the other. */
const SET_IN_ORDER = /^[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Common}]$/u;
/** Stands for something that is not in the text; the font has it without any ink. */
const OBJECT_REPLACEMENT = '\ufffc';
/** Blocks of scripts that run from right to left: the marks that they share count as common. */
const RIGHT_TO_LEFT =
  /^[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]$/u;

const LATIN = /^\p{Script=Latin}$/u;
const GREEK = /^\p{Script=Greek}$/u;
const CYRILLIC = /^\p{Script=Cyrillic}$/u;
const IN_WORD = /^[\p{L}\p{N}]$/u;
/** Drawn stroke for stroke like a Latin letter or a digit. */
const LOOKS_LATIN =
  /^[\u037f\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03ba\u03bf\u03dc\u03f2\u03f3\u03f9\u0405\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c-\u041e\u0420-\u0422\u0425\u0430\u0435\u043a\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04ae\u04bb\u04c0\u04cf\u051a-\u051d]$/u;
/** Drawn like punctuation of ASCII, and no variant of it by Unicode. */
const LOOKS_ASCII = /^[\u2010\u2011\u201a\u2215\u2223\ua789\ua78c]$/u;

/**
 * A text that somebody chose, so that the paper shows exactly that text. What the font lacks would
 * vanish, controls and right-to-left characters would reorder their neighbours, combining marks
 * would alter them, spaces in a row look like one, and some letters are drawn like others: all those
 * become `\u{…}`. So does a backslash that looks like the beginning of one, so that a copied text
 * reads in one way only.
 */
export function safeText(text: string, covers: Covers): Piece[] {
  const characters = Array.from(text);
  const mistakable = mistakableIn(characters);
  const pieces: Piece[] = [];
  characters.forEach((character, at) => {
    const shown = !mistakable.has(at) && shownAsItself(characters, at, covers);
    const last = pieces.at(-1);
    if (!shown) pieces.push({ text: escapeOf(character), escaped: true });
    else if (last === undefined || last.escaped) pieces.push({ text: character, escaped: false });
    else last.text += character;
  });
  return pieces;
}

function shownAsItself(characters: readonly string[], at: number, covers: Covers): boolean {
  const character = characters[at] ?? '';
  if (character === ' ') return isSeen(characters[at - 1]) && isSeen(characters[at + 1]);
  if (character === '\\' && characters[at + 1] === 'u' && characters[at + 2] === '{') return false;
  return (
    STANDS_ALONE.test(character) &&
    SET_IN_ORDER.test(character) &&
    !RIGHT_TO_LEFT.test(character) &&
    character !== OBJECT_REPLACEMENT &&
    !isVariant(character) &&
    covers(character.codePointAt(0) ?? 0)
  );
}

/** Of a character that is drawn the same, or of one of ASCII. */
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
 * Where Greek or Cyrillic letters would be taken for Latin ones: next to such in one word, or in a
 * word that has none but those that look like them.
 */
function mistakableIn(characters: readonly string[]): Set<number> {
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

/** A space between two of these is seen as one space. */
function isSeen(neighbour: string | undefined): boolean {
  return neighbour !== undefined && STANDS_ALONE.test(neighbour);
}

function escapeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`;
}

/**
 * Lines of at most `columns` characters; an escape is never broken. A space at the edge of a line
 * would not be seen, so there it is written as its code point.
 */
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
