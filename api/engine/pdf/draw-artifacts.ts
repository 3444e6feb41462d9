import { drawHeading } from './draw-fields.js';
import type { ArtifactRow } from './artifact-rows.js';
import { GREY, type PageWriter, TEXT } from './sheet.js';

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

/** Each artifact with its status and the end of its validity. */
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
