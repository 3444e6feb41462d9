import { MONO_ADVANCE, type FontName, type Fonts } from './fonts.js';
import { safeText, wrapPieces, type Piece } from './safe-text.js';

type Doc = PDFKit.PDFDocument;
type Element = ReturnType<Doc['struct']>;

/** A4 in points, and what stays free of it. */
export const PAGE = { width: 595.28, height: 841.89, side: 56, top: 72, bottom: 68 } as const;

export const INK = '#000000';
export const GREY = '#555555';
export const HAIRLINE = '#999999';
/** Behind what is written as its code point. */
const ESCAPE_GROUND = '#d9d9d9';

/** Sizes and the distance from line to line. */
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

/** A line that fits, ready to be put down anywhere. */
export type Line =
  { kind: 'words'; style: TextStyle; text: string } | { kind: 'exact'; pieces: Piece[] };

/**
 * Pages, and a place on them that moves down. Whatever is drawn is either part of the document's
 * structure (`block`) or marked as having no meaning (`aside`).
 */
export class PageWriter {
  y: number = PAGE.top;
  /** Something was written as its code point, which asks for a legend. */
  hasEscapes = false;
  readonly left = PAGE.side;
  readonly width = PAGE.width - 2 * PAGE.side;
  private readonly root: Element;
  private block_: Element | null = null;

  constructor(
    readonly doc: Doc,
    private readonly fonts: Fonts,
  ) {
    this.root = doc.struct('Document');
    doc.addStructure(this.root);
    doc.addPage();
  }

  /** One element of the structure, on as many pages as it takes. */
  block(type: string, draw: () => void, alt?: string): void {
    const element = this.doc.struct(type, alt === undefined ? {} : { alt });
    this.root.add(element);
    this.block_ = element;
    draw();
    this.block_ = null;
    element.end();
  }

  /** Content of the current block, all of it on the current page. */
  mark(draw: () => void): void {
    if (this.block_ === null) throw new Error('content is drawn within a block');
    this.block_.add(this.doc.markStructureContent('Span'));
    draw();
    this.doc.endMarkedContent();
  }

  /** Makes a part of the current block lead to a URL. */
  link(url: string, x: number, y: number, width: number, height: number): void {
    const option = { structParent: this.block_ };
    this.doc.link(x, y, width, height, url, option as PDFKit.Mixins.AnnotationOption);
  }

  /** Lines, frames and what repeats on every page: nothing that a reader aloud would read. */
  aside(draw: () => void): void {
    this.doc.markContent('Artifact', { type: 'Layout' });
    draw();
    this.doc.endMarkedContent();
  }

  end(): void {
    this.root.end();
  }

  /** Goes on to the next page unless so much room is left on this one; whether it did. */
  need(height: number): boolean {
    if (this.y + height <= PAGE.height - PAGE.bottom) return false;
    this.doc.addPage();
    this.y = PAGE.top;
    return true;
  }

  widthOf(style: TextStyle, text: string): number {
    return this.doc.font(style.font).fontSize(style.size).widthOfString(text);
  }

  /** The paper's own words, broken between words. */
  wrapWords(style: TextStyle, text: string, width: number): Line[] {
    const lines: string[] = [];
    for (const word of text.split(' ')) {
      const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
      if (lines.length > 0 && this.widthOf(style, longer) <= width) lines.splice(-1, 1, longer);
      else lines.push(word);
    }
    return lines.map((line) => ({ kind: 'words', style, text: line }));
  }

  /** A text of the document, broken wherever the line is full. */
  wrapExact(text: string, width: number): Line[] {
    const columns = Math.floor(width / (TEXT.exact.size * MONO_ADVANCE) + 1e-6);
    return wrapPieces(safeText(text, this.fonts.covers), columns).map((pieces) => ({
      kind: 'exact',
      pieces,
    }));
  }

  /** Puts a line down with its upper left corner there; within `mark` or `aside`. */
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
