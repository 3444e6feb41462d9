import { drawField, fieldHeight } from './draw-fields.js';
import type { PdfModel } from './paper.js';
import { qrOf, QUIET_ZONE } from './qr.js';
import { GREY, HAIRLINE, INK, type PageWriter, TEXT } from './sheet.js';

const QR_SIDE = 96;
const GAP = 18;
const PAD = 11;

/** What is seen first: which proof, where to look it up, and the verdict. */
export function drawHead(sheet: PageWriter, paper: PdfModel): void {
  const top = sheet.y;
  drawQr(sheet, paper.lookupUrl, sheet.left + sheet.width - QR_SIDE, top);
  const width = sheet.width - QR_SIDE - GAP;
  sheet.block('H1', () => {
    sheet.mark(() => sheet.write(TEXT.title, 'Autonomous Execution Proof', sheet.left, top - 4));
  });
  sheet.y = top + TEXT.title.leading;
  labelled(sheet, 'Proof', paper.proofId, width, false);
  sheet.block('P', () => {
    for (const line of sheet.wrapWords(TEXT.small, paper.howToCheck, width)) {
      sheet.mark(() => sheet.put(line, sheet.left, sheet.y, GREY));
      sheet.y += TEXT.small.leading;
    }
  });
  sheet.y = Math.max(sheet.y, top + QR_SIDE) + 2;
  labelled(sheet, 'Current standing, open to anyone', paper.lookupUrl, sheet.width, true);
  sheet.y += 8;
  drawVerdict(sheet, paper);
}

function labelled(
  sheet: PageWriter,
  label: string,
  text: string,
  width: number,
  isLink: boolean,
): void {
  sheet.block(isLink ? 'Link' : 'P', () => {
    sheet.mark(() => sheet.write(TEXT.label, label, sheet.left, sheet.y, GREY));
    sheet.y += TEXT.label.leading;
    for (const line of sheet.wrapExact(text, width)) {
      sheet.mark(() => sheet.put(line, sheet.left, sheet.y));
      if (isLink) sheet.link(text, sheet.left, sheet.y, width, TEXT.exact.leading);
      sheet.y += TEXT.exact.leading;
    }
  });
  sheet.y += 3;
}

/** Vectors, with the quiet zone inside the square. */
function drawQr(sheet: PageWriter, url: string, x: number, y: number): void {
  const { dark, size } = qrOf(url);
  const module = QR_SIDE / (size + 2 * QUIET_ZONE);
  const origin = QUIET_ZONE * module;
  const draw = (): void => {
    for (const run of dark) {
      const { doc } = sheet;
      doc.rect(
        x + origin + run.x * module,
        y + origin + run.y * module,
        run.width * module,
        module,
      );
    }
    sheet.doc.fill(INK);
  };
  sheet.block('Figure', () => sheet.mark(draw), `QR code of ${url}`);
}

/** In a frame; white on black where nothing is asserted, so that no copy can lose it. */
function drawVerdict(sheet: PageWriter, { headline, verdict }: PdfModel): void {
  const inner = sheet.width - 2 * PAD;
  const lines = sheet.wrapWords(TEXT.headline, headline.text, inner);
  const band = lines.length * TEXT.headline.leading + 2 * (PAD - 3);
  const body = verdict.reduce((sum, field) => sum + fieldHeight(sheet, field, inner), 0);
  const height = band + body + PAD + 3;
  const top = sheet.y;
  sheet.aside(() => {
    if (!headline.asserts) sheet.doc.rect(sheet.left, top, sheet.width, band).fill(INK);
    sheet.doc
      .lineWidth(headline.asserts ? 1 : 2.5)
      .rect(sheet.left, top, sheet.width, height)
      .stroke(INK);
    if (headline.asserts) {
      sheet.rule(sheet.left, top + band, sheet.left + sheet.width, top + band, 0.5, HAIRLINE);
    }
  });
  sheet.block('H2', () => {
    lines.forEach((line, at) => {
      const y = top + PAD - 2 + at * TEXT.headline.leading;
      sheet.mark(() => sheet.put(line, sheet.left + PAD, y, headline.asserts ? INK : '#ffffff'));
    });
  });
  sheet.y = top + band + PAD - 3;
  for (const field of verdict) drawField(sheet, field, sheet.left + PAD, inner);
  sheet.y = top + height;
}
