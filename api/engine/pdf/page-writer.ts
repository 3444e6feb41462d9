type Doc = PDFKit.PDFDocument;
type Element = ReturnType<Doc['struct']>;

/** Fixed text is in `sans`, text of the document in `mono`. */
export type FontName = 'sans' | 'sansBold' | 'mono' | 'monoBold';

/** Character width of the monospaced fonts, in units of the font size. */
const MONO_ADVANCE = 1233 / 2048;

/** A4 and its margins, in points. */
export const PAGE = { width: 595.28, height: 841.89, side: 56, top: 72, bottom: 68 } as const;

export const INK = '#000000';
export const GREY = '#555555';
export const HAIRLINE = '#999999';
const ESCAPE_GROUND = '#d9d9d9';

export const TEXT = {
  words: { font: 'sans', size: 8.5, leading: 12 },
  label: { font: 'sansBold', size: 8, leading: 12 },
  exact: { font: 'mono', size: 8, leading: 12 },
  heading: { font: 'sansBold', size: 10.5, leading: 15 },
  title: { font: 'sansBold', size: 19, leading: 25 },
  headline: { font: 'sansBold', size: 14, leading: 19 },
  small: { font: 'sans', size: 7.5, leading: 10 },
} as const satisfies Record<string, TextStyle>;

export interface TextStyle {
  font: FontName;
  size: number;
  leading: number;
}

export type Line =
  { kind: 'words'; style: TextStyle; text: string } | { kind: 'exact'; pieces: Piece[] };

/** Writes pages. Content is either in the document structure (`block`) or skipped by screen readers (`aside`). */
export class PageWriter {
  y: number = PAGE.top;
  /** Whether an escape was written: the legend must then explain escapes. */
  hasEscapes = false;
  readonly left = PAGE.side;
  readonly width = PAGE.width - 2 * PAGE.side;
  private readonly root: Element;
  private block_: Element | null = null;
  private readonly covers: Covers;

  constructor(readonly doc: Doc) {
    this.covers = coverageOf(doc);
    this.root = doc.struct('Document');
    doc.addStructure(this.root);
    doc.addPage();
  }

  /** Writes one structure element, which may span pages. */
  block(type: string, draw: () => void, alt?: string): void {
    const element = this.doc.struct(type, alt === undefined ? {} : { alt });
    this.root.add(element);
    this.block_ = element;
    draw();
    this.block_ = null;
    element.end();
  }

  mark(draw: () => void): void {
    if (this.block_ === null) throw new Error('content must be drawn within a block');
    this.block_.add(this.doc.markStructureContent('Span'));
    draw();
    this.doc.endMarkedContent();
  }

  link(url: string, x: number, y: number, width: number, height: number): void {
    const option = { structParent: this.block_ };
    this.doc.link(x, y, width, height, url, option as PDFKit.Mixins.AnnotationOption);
  }

  /** Draws lines, frames and repeated content, which screen readers skip. */
  aside(draw: () => void): void {
    this.doc.markContent('Artifact', { type: 'Layout' });
    draw();
    this.doc.endMarkedContent();
  }

  end(): void {
    this.root.end();
  }

  /** Starts a new page if less than `height` is left. Returns whether it did. */
  need(height: number): boolean {
    if (this.y + height <= PAGE.height - PAGE.bottom) return false;
    this.doc.addPage();
    this.y = PAGE.top;
    return true;
  }

  widthOf(style: TextStyle, text: string): number {
    return this.doc.font(style.font).fontSize(style.size).widthOfString(text);
  }

  wrapWords(style: TextStyle, text: string, width: number): Line[] {
    const lines: string[] = [];
    for (const word of text.split(' ')) {
      const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
      if (lines.length > 0 && this.widthOf(style, longer) <= width) lines.splice(-1, 1, longer);
      else lines.push(word);
    }
    return lines.map((line) => ({ kind: 'words', style, text: line }));
  }

  wrapExact(text: string, width: number): Line[] {
    const columns = Math.floor(width / (TEXT.exact.size * MONO_ADVANCE) + 1e-6);
    return wrapPieces(safeText(text, this.covers), columns).map((pieces) => ({
      kind: 'exact',
      pieces,
    }));
  }

  /** Draws a line with its upper left corner at (x, y), within `mark` or `aside`. */
  put(line: Line, x: number, y: number, colour: string = INK): void {
    if (line.kind === 'words') this.write(line.style, line.text, x, y, colour);
    else this.putPieces(line.pieces, x, y, colour);
  }

  write(style: TextStyle, text: string, x: number, y: number, colour: string = INK): void {
    this.doc
      .font(style.font)
      .fontSize(style.size)
      .fillColor(colour)
      .text(text, x, y, { lineBreak: false });
  }

  rule(x1: number, y1: number, x2: number, y2: number, weight = 0.5, colour: string = HAIRLINE) {
    this.doc.lineWidth(weight).strokeColor(colour).moveTo(x1, y1).lineTo(x2, y2).stroke();
  }

  private putPieces(pieces: readonly Piece[], x: number, y: number, colour: string): void {
    const { size } = TEXT.exact;
    let at = x;
    for (const { text, escaped } of pieces) {
      const width = Array.from(text).length * size * MONO_ADVANCE;
      if (escaped) {
        this.hasEscapes = true;
        const style = { ...TEXT.exact, font: 'monoBold' } as const;
        this.doc.rect(at + 0.4, y - 0.6, width - 0.8, size + 2.2).fill(ESCAPE_GROUND);
        this.write(style, text, at, y, INK);
      } else {
        this.write(TEXT.exact, text, at, y, colour);
      }
      at += width;
    }
  }
}

/** Reports which characters the font of document text has: PDFKit renders any other character as an empty box or nothing. */
export function coverageOf(doc: Doc): Covers {
  interface WithFont {
    // A private member, because PDFKit offers no other access to the font that it parsed.
    _font: { font: { hasGlyphForCodePoint(codePoint: number): boolean } };
  }
  const { font } = (doc.font('mono') as unknown as WithFont)._font;
  return (codePoint) => font.hasGlyphForCodePoint(codePoint);
}

export type Covers = (codePoint: number) => boolean;

export interface Piece {
  text: string;
  /** Whether `text` is an escape, which gets a style that document text never has. */
  escaped: boolean;
}

/** Letters, digits, punctuation and symbols: neither invisible nor combining. */
const IS_VISIBLE = /^[\p{L}\p{N}\p{P}\p{S}]$/u;
/** Left-to-right scripts without reordering or shaping. */
const LEFT_TO_RIGHT = /^[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Common}]$/u;
/** U+FFFC has no visible glyph in the font. */
const OBJECT_REPLACEMENT = '\ufffc';
/** Right-to-left blocks, listed because Unicode assigns some of their marks to Script=Common. */
const RIGHT_TO_LEFT =
  /^[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]$/u;

/**
 * Makes untrusted text legible on the page. Escapes as `\u{…}`: characters without a glyph, controls
 * and right-to-left characters (which reorder their neighbours), combining marks, characters that
 * copying may normalize, and repeated spaces. Also escapes a backslash that begins such a sequence,
 * so that copied text is unambiguous.
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
