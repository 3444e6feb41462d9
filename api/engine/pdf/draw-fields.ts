import type { Field, Section, Value } from './field.js';
import { GREY, type Line, type PageWriter, TEXT } from './sheet.js';

const LABEL_WIDTH = 92;
const AFTER_FIELD = 3;
const LEADING = TEXT.words.leading;

/** A heading stays with what it is the heading of. */
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
  'is not in the text: on grey, it stands for the one character of that Unicode number, which this paper cannot show as it is, which would change how its neighbours look, or which looks like another. The file inside this PDF has the text itself.';

/** Says what an escape is, where the first one has just been seen. */
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

/** A paragraph of the paper's own words. */
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

/** Label to the left, values to the right, each beginning on a line of its own. */
export function drawField(sheet: PageWriter, field: Field, x: number, width: number): void {
  const lines = fieldLines(sheet, field, width);
  sheet.block('P', () => {
    lines.forEach((line, at) => {
      // A label is never left behind with less than it can have.
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
