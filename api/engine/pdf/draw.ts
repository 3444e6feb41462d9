import type { ArtifactRow } from './artifact-rows.js';
import type { ChainStep } from './chain-steps.js';
import type { Field, Section, Value } from './field.js';
import type { PdfModel } from './model.js';
import { GREY, HAIRLINE, INK, type Line, PAGE, type PageWriter, TEXT } from './page-writer.js';
import { qrOf, QUIET_ZONE } from './qr.js';

const COLUMNS = [
  { title: 'Artifact', x: 0, of: ({ kind }: ArtifactRow) => kind, style: TEXT.label },
  { title: 'Status', x: 57, of: ({ status }: ArtifactRow) => status, style: TEXT.exact },
  {
    title: 'Valid until',
    x: 171,
    of: ({ validUntil }: ArtifactRow) => validUntil,
    style: TEXT.exact,
  },
  { title: 'Identifier', x: 297, of: ({ id }: ArtifactRow) => id, style: TEXT.exact },
] as const;

export function drawArtifacts(sheet: PageWriter, rows: readonly ArtifactRow[]): void {
  drawHeading(sheet, 'Validity', (rows.length + 1) * (TEXT.exact.leading + 3));
  sheet.block('P', () => {
    sheet.mark(() => {
      for (const { title, x } of COLUMNS) {
        sheet.write(TEXT.label, title, sheet.left + x, sheet.y, GREY);
      }
    });
  });
  sheet.y += TEXT.label.leading + 2;
  for (const row of rows) {
    sheet.block('P', () => {
      sheet.mark(() => {
        for (const { of, style, x } of COLUMNS) {
          sheet.write(style, of(row), sheet.left + x, sheet.y);
        }
      });
    });
    sheet.y += TEXT.exact.leading + 2;
  }
}

const STEP = 30;
const RADIUS = 7.5;
const NAME_X = 26;
const REFERENCE_X = 148;

/** Draws the steps from top to bottom. A step that is not asserted is crossed out, its link broken. */
export function drawChain(
  sheet: PageWriter,
  steps: readonly ChainStep[],
  end: string | null,
): void {
  const height = steps.length * STEP;
  drawHeading(sheet, 'Trust chain', height + (end === null ? 0 : 20));
  const top = sheet.y + RADIUS + 1;
  const x = sheet.left + RADIUS + 1;
  sheet.aside(() => {
    steps.forEach((step, at) => {
      const y = top + at * STEP;
      if (at > 0) link(sheet, x, y - STEP + RADIUS, y - RADIUS, step.isAsserted);
      node(sheet, x, y, at + 1, step.isAsserted);
    });
  });
  steps.forEach((step, at) => drawStep(sheet, step, at + 1, top + at * STEP));
  sheet.y = top + (steps.length - 1) * STEP + RADIUS + 10;
  if (end !== null) drawWords(sheet, end);
}

function link(sheet: PageWriter, x: number, from: number, to: number, isAsserted: boolean): void {
  const { doc } = sheet;
  if (!isAsserted) doc.dash(2, { space: 2.5 });
  sheet.rule(x, from, x, to, 1.2, INK);
  doc.undash();
}

function node(sheet: PageWriter, x: number, y: number, number: number, isAsserted: boolean): void {
  const { doc } = sheet;
  doc.lineWidth(1).circle(x, y, RADIUS);
  if (isAsserted) {
    doc.fillAndStroke(INK, INK);
    const width = sheet.widthOf(TEXT.label, String(number));
    sheet.write(TEXT.label, String(number), x - width / 2, y - 4.7, '#ffffff');
    return;
  }
  doc.fillAndStroke('#ffffff', INK);
  const arm = RADIUS * 0.5;
  sheet.rule(x - arm, y - arm, x + arm, y + arm, 1.2, INK);
  sheet.rule(x - arm, y + arm, x + arm, y - arm, 1.2, INK);
}

function drawStep(sheet: PageWriter, step: ChainStep, number: number, y: number): void {
  const width = sheet.width - REFERENCE_X;
  const lines = valueLines(sheet, step.reference, width);
  const firstLine = y - 10.5;
  sheet.block(
    'P',
    () => {
      sheet.mark(() => {
        sheet.write(TEXT.label, step.name, sheet.left + NAME_X, y - 10.5);
        const style = step.isAsserted ? TEXT.words : TEXT.label;
        sheet.write(style, step.state, sheet.left + NAME_X, y + 1);
        lines.forEach((line, at) => {
          sheet.put(line, sheet.left + REFERENCE_X, firstLine + at * TEXT.exact.leading);
        });
      });
    },
    `Step ${number}: ${step.name}, ${step.state}`,
  );
}

const LABEL_WIDTH = 92;
const AFTER_FIELD = 3;
const LEADING = TEXT.words.leading;

/** Keeps the heading on the same page as `keepWith` points of its content. */
export function drawHeading(sheet: PageWriter, title: string, keepWith = 40): void {
  sheet.y += 13;
  sheet.need(TEXT.heading.leading + 6 + keepWith);
  sheet.block('H2', () => {
    sheet.mark(() => sheet.write(TEXT.heading, title, sheet.left, sheet.y));
  });
  sheet.y += TEXT.heading.leading;
  sheet.aside(() => sheet.rule(sheet.left, sheet.y, sheet.left + sheet.width, sheet.y));
  sheet.y += 6;
}

export function drawSection(sheet: PageWriter, section: Section): void {
  drawHeading(sheet, section.title);
  if (section.intro !== undefined) drawWords(sheet, section.intro);
  for (const field of section.fields) drawField(sheet, field, sheet.left, sheet.width);
}

const LEGEND =
  'on grey is not part of the text. It replaces the character with that Unicode number, which this PDF cannot show, which would change the look of its neighbours, or which looks like another character. The attached file has the original text.';

/** Explains escapes, after the first one. */
export function drawLegend(sheet: PageWriter): void {
  const sample = [{ text: '\\u{\u2026}', escaped: true }];
  sheet.y += 2;
  sheet.block('Note', () => {
    sheet.wrapWords(TEXT.small, LEGEND, sheet.width - LABEL_WIDTH).forEach((line, at) => {
      sheet.need(TEXT.small.leading);
      sheet.mark(() => {
        if (at === 0) sheet.put({ kind: 'exact', pieces: sample }, sheet.left, sheet.y);
        sheet.put(line, sheet.left + LABEL_WIDTH, sheet.y, GREY);
      });
      sheet.y += TEXT.small.leading;
    });
  });
  sheet.y += AFTER_FIELD;
}

/** A paragraph of fixed text. */
export function drawWords(sheet: PageWriter, text: string): void {
  sheet.block('P', () => {
    for (const line of sheet.wrapWords(TEXT.words, text, sheet.width)) {
      sheet.need(LEADING);
      sheet.mark(() => sheet.put(line, sheet.left, sheet.y, GREY));
      sheet.y += LEADING;
    }
  });
  sheet.y += AFTER_FIELD;
}

/** Label to the left, values to the right, each on a new line. */
export function drawField(sheet: PageWriter, field: Field, x: number, width: number): void {
  const lines = fieldLines(sheet, field, width);
  sheet.block('P', () => {
    lines.forEach((line, at) => {
      // Keeps the label on one page with up to two lines of its value.
      const isNewPage = sheet.need(LEADING * (at === 0 ? Math.min(lines.length, 2) : 1));
      sheet.mark(() => {
        if (at === 0) sheet.write(TEXT.label, field.label, x, sheet.y);
        else if (isNewPage) sheet.write(TEXT.small, 'continued', x, sheet.y, GREY);
      });
      sheet.mark(() => sheet.put(line, x + LABEL_WIDTH, sheet.y));
      sheet.y += LEADING;
    });
  });
  sheet.y += AFTER_FIELD;
}

export function fieldHeight(sheet: PageWriter, field: Field, width: number): number {
  return fieldLines(sheet, field, width).length * LEADING + AFTER_FIELD;
}

function fieldLines(sheet: PageWriter, { values }: Field, width: number): Line[] {
  return values.flatMap((value) => valueLines(sheet, value, width - LABEL_WIDTH));
}

export function valueLines(sheet: PageWriter, value: Value, width: number): Line[] {
  return 'words' in value
    ? sheet.wrapWords(TEXT.words, value.words, width)
    : sheet.wrapExact(value.exact, width);
}

const QR_SIDE = 96;
const GAP = 18;
const PAD = 11;

/** Head of the first page: proof, lookup and verdict. */
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
  labelled(sheet, 'Current status, public lookup', paper.lookupUrl, sheet.width, true);
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

/** Framed. White on black if nothing is asserted, so that black-and-white copies keep it. */
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

const HEADER_Y = 40;
const FOOTER_Y = PAGE.height - 46;

/** Header and footer of every page: headline, proof id and "n of m". */
export function drawMargins(sheet: PageWriter, { headline, proofId }: PdfModel): void {
  const { doc } = sheet;
  const right = sheet.left + sheet.width;
  const { start, count } = doc.bufferedPageRange();
  for (let n = 1; n <= count; n++) {
    doc.switchToPage(start + n - 1);
    doc.markContent('Artifact', { type: 'Pagination' });
    if (n > 1 || !headline.asserts) {
      const width = sheet.widthOf(TEXT.label, headline.text);
      if (!headline.asserts) {
        doc.rect(right - width - 6, HEADER_Y - 3, width + 12, 15).fill(INK);
      }
      sheet.write(
        TEXT.label,
        headline.text,
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
