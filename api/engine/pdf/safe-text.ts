/** Whether a font has a glyph for a code point. */
export type Covers = (codePoint: number) => boolean;

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

/**
 * Makes untrusted text legible on the page. Escapes as `\u{…}`: characters without a glyph, controls
 * and right-to-left characters (reorder their neighbours), combining marks, characters that copying
 * may normalize, and repeated spaces. Also escapes a backslash that begins such a sequence, so that
 * copied text has one reading.
 */
export function safeText(text: string, covers: Covers): Piece[] {
  const characters = Array.from(text);
  const pieces: Piece[] = [];
  characters.forEach((character, at) => {
    append(pieces, shownAsItself(characters, at, covers) ? plain(character) : escaped(character));
  });
  return pieces;
}

function shownAsItself(characters: readonly string[], at: number, covers: Covers): boolean {
  const character = characters[at] ?? '';
  // A space is visible only between two visible characters.
  if (character === ' ') return [at - 1, at + 1].every((i) => IS_VISIBLE.test(characters[i] ?? ''));
  if (character === '\\' && characters[at + 1] === 'u' && characters[at + 2] === '{') return false;
  return (
    IS_VISIBLE.test(character) &&
    LEFT_TO_RIGHT.test(character) &&
    !RIGHT_TO_LEFT.test(character) &&
    character !== OBJECT_REPLACEMENT &&
    character.normalize('NFC') === character &&
    covers(character.codePointAt(0) ?? 0)
  );
}

const plain = (text: string): Piece => ({ text, escaped: false });

function escaped(character: string): Piece {
  const codePoint = (character.codePointAt(0) ?? 0).toString(16).toUpperCase();
  return { text: `\\u{${codePoint}}`, escaped: true };
}

/** Wraps at `columns` characters without breaking escapes. Escapes spaces at line edges, where they are invisible. */
export function wrapPieces(pieces: readonly Piece[], columns: number): Piece[][] {
  const cells = pieces.flatMap((piece) =>
    piece.escaped ? [piece] : Array.from(piece.text, plain),
  );
  const lines: Piece[][] = [[]];
  let used = 0;
  cells.forEach((cell, at) => {
    const next = cells[at + 1];
    const isAtEdge = used === 0 || used >= columns || (next && used + 1 + widthOf(next) > columns);
    const shown = cell.text === ' ' && isAtEdge ? escaped(' ') : cell;
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
