import { safeText, wrapPieces, type Covers, type Piece } from './safe-text.js';

type Doc = PDFKit.PDFDocument;
type Element = ReturnType<Doc['struct']>;

/** Fixed text is in `sans`, text of the document in `mono`. */
export type FontName = 'sans' | 'sansBold' | 'mono' | 'monoBold';

/** Character width of the monospaced fonts, in units of the font size. */
export const MONO_ADVANCE = 1233 / 2048;

/** A4 and its margins, in points. */
export const PAGE = { width: 595.28, height: 841.89, side: 56, top: 72, bottom: 68 } as const;

export const INK = '#000000';
export const GREY = '#555555';
export const HAIRLINE = '#999999';
/** Background of escapes. */
const ESCAPE_GROUND = '#d9d9d9';

/** Font sizes and line heights, in points. */
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

/** A wrapped line. */
export type Line =
  { kind: 'words'; style: TextStyle; text: string } | { kind: 'exact'; pieces: Piece[] };

/**
 * Writes tagged pages from top to bottom. Content is either part of the document structure (`block`)
 * or an artifact that screen readers skip (`aside`).
 */
export class PageWriter {
  y: number = PAGE.top;
  /** An escape was written, so the legend is needed. */
  hasEscapes = false;
  readonly left = PAGE.side;
  readonly width = PAGE.width - 2 * PAGE.side;
  private readonly root: Element;
  private block_: Element | null = null;
  private readonly covers: Covers;

  constructor(readonly doc: Doc) {
    this.covers = coverageOf(doc, 'mono');
    this.root = doc.struct('Document');
    doc.addStructure(this.root);
    doc.addPage();
  }

  /** One structure element, which may span pages. */
  block(type: string, draw: () => void, alt?: string): void {
    const element = this.doc.struct(type, alt === undefined ? {} : { alt });
    this.root.add(element);
    this.block_ = element;
    draw();
    this.block_ = null;
    element.end();
  }

  /** Content of the current block on the current page. */
  mark(draw: () => void): void {
    if (this.block_ === null) throw new Error('content must be drawn within a block');
    this.block_.add(this.doc.markStructureContent('Span'));
    draw();
    this.doc.endMarkedContent();
  }

  /** Links an area of the current block to a URL. */
  link(url: string, x: number, y: number, width: number, height: number): void {
    const option = { structParent: this.block_ };
    this.doc.link(x, y, width, height, url, option as PDFKit.Mixins.AnnotationOption);
  }

  /** Lines, frames and repeated content, which screen readers skip. */
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

  /** Wraps fixed text between words. */
  wrapWords(style: TextStyle, text: string, width: number): Line[] {
    const lines: string[] = [];
    for (const word of text.split(' ')) {
      const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
      if (lines.length > 0 && this.widthOf(style, longer) <= width) lines.splice(-1, 1, longer);
      else lines.push(word);
    }
    return lines.map((line) => ({ kind: 'words', style, text: line }));
  }

  /** Wraps text of the document at any character. */
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

/** Glyphs of a font: a missing one would silently render as an empty box or nothing. */
export function coverageOf(doc: Doc, name: FontName): Covers {
  interface WithFont {
    // PDFKit does not publish the font that it parsed.
    _font: { font: { hasGlyphForCodePoint(codePoint: number): boolean } };
  }
  const { font } = (doc.font(name) as unknown as WithFont)._font;
  return (codePoint) => font.hasGlyphForCodePoint(codePoint);
}
