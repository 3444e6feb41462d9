import type { ChainStep } from './chain-steps.js';
import { drawHeading, drawWords, valueLines } from './draw-fields.js';
import { INK, type PageWriter, TEXT } from './sheet.js';

const STEP = 30;
const RADIUS = 7.5;
const NAME_X = 26;
const REFERENCE_X = 148;

/** The steps from top to bottom. A step that does not stand is crossed out, its link is broken. */
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
      if (at > 0) link(sheet, x, y - STEP + RADIUS, y - RADIUS, step.stands);
      node(sheet, x, y, at + 1, step.stands);
    });
  });
  steps.forEach((step, at) => drawStep(sheet, step, at + 1, top + at * STEP));
  sheet.y = top + (steps.length - 1) * STEP + RADIUS + 10;
  if (end !== null) drawWords(sheet, end);
}

function link(sheet: PageWriter, x: number, from: number, to: number, stands: boolean): void {
  const { doc } = sheet;
  if (!stands) doc.dash(2, { space: 2.5 });
  sheet.rule(x, from, x, to, 1.2, INK);
  doc.undash();
}

function node(sheet: PageWriter, x: number, y: number, number: number, stands: boolean): void {
  const { doc } = sheet;
  doc.lineWidth(1).circle(x, y, RADIUS);
  if (stands) {
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
        const style = step.stands ? TEXT.words : TEXT.label;
        sheet.write(style, step.state, sheet.left + NAME_X, y + 1);
        lines.forEach((line, at) => {
          sheet.put(line, sheet.left + REFERENCE_X, firstLine + at * TEXT.exact.leading);
        });
      });
    },
    `Step ${number}: ${step.name}, ${step.state}`,
  );
}
