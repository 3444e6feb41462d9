import fc from 'fast-check';
import PDFDocument from 'pdfkit';
import { describe, expect, it } from 'vitest';
import { coverageOf, safeText, wrapPieces, type Piece } from '#api/engine/pdf/page-writer';
import { FONTS } from '#api/engine/pdf/render';

const doc = new PDFDocument({ font: '' });
doc.registerFont('mono', FONTS.mono);
const covers = coverageOf(doc);

const shown = (text: string): string =>
  safeText(text, covers)
    .map((piece) => (piece.escaped ? `[${piece.text}]` : piece.text))
    .join('');

/** The text that a reader decodes with the printed legend. */
const readBack = (pieces: readonly Piece[]): string =>
  pieces
    .map(({ text, escaped }) =>
      escaped ? String.fromCodePoint(parseInt(text.slice(3, -1), 16)) : text,
    )
    .join('');

describe('safeText', () => {
  it.each([
    ['characters that the font lacks', '漢a😀', '[\\u{6F22}]a[\\u{1F600}]'],
    ['controls', 'a\tb\u0007\n', 'a[\\u{9}]b[\\u{7}][\\u{A}]'],
    ['controls that change the reading direction', 'a\u202Eb\u2066c', 'a[\\u{202E}]b[\\u{2066}]c'],
    ['right-to-left letters that the font has', 'אa', '[\\u{5D0}]a'],
    ['right-to-left marks that belong to no script', 'a\u061f', 'a[\\u{61F}]'],
    ['combining marks that the font has', 'e\u0301a\u0336', 'e[\\u{301}]a[\\u{336}]'],
    [
      'characters without width or ink',
      'a\u200bb\u00adc\u2028',
      'a[\\u{200B}]b[\\u{AD}]c[\\u{2028}]',
    ],
    ['unusual spaces', 'a\u00a0b\u3000c', 'a[\\u{A0}]b[\\u{3000}]c'],
    ['spaces that would not be seen', ' a  b ', '[\\u{20}]a[\\u{20}][\\u{20}]b[\\u{20}]'],
    ['lone surrogates', 'a\ud800', 'a[\\u{D800}]'],
    ['characters that copying normalizes', '\u212a\u2126', '[\\u{212A}][\\u{2126}]'],
    ['the beginning of an imitated escape', '\\u{41}', '[\\u{5C}]u{41}'],
  ])('shows %s as escaped code points', (_what, text, expected) => {
    expect(shown(text)).toBe(expected);
  });

  it('loses no character for any text and line width', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }),
        fc.integer({ min: 12, max: 60 }),
        (text, columns) => {
          const lines = wrapPieces(safeText(text, covers), columns);
          expect(lines.map(readBack).join('')).toBe(text);
          for (const line of lines) {
            expect(Array.from(line.map((piece) => piece.text).join('')).length).toBeLessThanOrEqual(
              columns,
            );
          }
        },
      ),
    );
  });
});
