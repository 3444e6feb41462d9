import type { PdfModel } from './paper.js';
import { GREY, INK, PAGE, type PageWriter, TEXT } from './sheet.js';

const HEADER_Y = 40;
const FOOTER_Y = PAGE.height - 46;

/** On every page: which proof it is of, its standing where it has none, and "n of m". */
export function drawMargins(sheet: PageWriter, { headline, proofId }: PdfModel): void {
  const { doc } = sheet;
  const right = sheet.left + sheet.width;
  const { start, count } = doc.bufferedPageRange();
  for (let n = 1; n <= count; n++) {
    doc.switchToPage(start + n - 1);
    doc.markContent('Artifact', { type: 'Pagination' });
    if (n > 1 || !headline.asserts) {
      const standing = headline.text;
      const width = sheet.widthOf(TEXT.label, standing);
      if (!headline.asserts) {
        doc.rect(right - width - 6, HEADER_Y - 3, width + 12, 15).fill(INK);
      }
      sheet.write(
        TEXT.label,
        standing,
        right - width,
        HEADER_Y,
        headline.asserts ? GREY : '#ffffff',
      );
    }
    if (n > 1) sheet.write(TEXT.small, 'Autonomous Execution Proof', sheet.left, HEADER_Y, GREY);
    sheet.rule(sheet.left, FOOTER_Y - 6, right, FOOTER_Y - 6);
    sheet.write({ ...TEXT.small, font: 'mono' }, proofId, sheet.left, FOOTER_Y, GREY);
    const number = `${n} of ${count}`;
    const x = right - sheet.widthOf(TEXT.small, number);
    sheet.write(TEXT.small, number, x, FOOTER_Y, GREY);
    doc.endMarkedContent();
  }
}
