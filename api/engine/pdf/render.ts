import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import PDFDocument from 'pdfkit';
import qrcode from 'qrcode';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { buildPdfModel, type Field, type PdfModel, type Section } from './model.js';
import {
  PageWriter,
  type FontName,
  GREY,
  HAIRLINE,
  INK,
  type Line,
  PAGE,
  TEXT,
} from './page-writer.js';

export interface PdfRequest {
  json: Uint8Array;
  /** URL of the public page that shows the current status of the proof. */
  pageUrl: string;
}

/** Reads the fonts from their package: system fonts could differ and change the bytes. */
const { resolve } = createRequire(import.meta.url);
const font = (file: string) => readFileSync(resolve(`dejavu-fonts-ttf/ttf/${file}.ttf`));
export const FONTS: Readonly<Record<FontName, Buffer>> = {
  sans: font('DejaVuSans'),
  sansBold: font('DejaVuSans-Bold'),
  mono: font('DejaVuSansMono'),
  monoBold: font('DejaVuSansMono-Bold'),
};

/** Called by Piscina in a worker thread. Deterministic: the bytes depend on the request, not on a clock. */
export default async function renderPdf({ json, pageUrl }: PdfRequest): Promise<Uint8Array> {
  const document = proofExportSchema.parse(parseStrict(json));
  const time = new Date(parseTime(document.verdict.verified_at ?? document.aep.accepted_at));
  const doc = openDocument(document, json, time);
  drawPdf(new PageWriter(doc), buildPdfModel(document, json, pageUrl));
  // The source data of the PDF, byte for byte (ISO 32000-2, AFRelationship).
  const attachment = {
    name: `${document.proof_id}.json`,
    type: 'application/json',
    description: 'The JSON export of the proof in this PDF, for verification and replay.',
    relationship: 'Data',
    creationDate: time,
    modifiedDate: time,
  };
  doc.file(Buffer.from(json), attachment);
  doc.end();
  const chunks: Uint8Array[] = [];
  for await (const chunk of doc) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks);
}

function openDocument({ proof_id }: ProofExport, json: Uint8Array, time: Date): PDFKit.PDFDocument {
  const doc = new PDFDocument({
    size: 'A4',
    margin: 0,
    autoFirstPage: false,
    bufferPages: true,
    // Uncompressed, because zlib output differs between versions and processors.
    compress: false,
    pdfVersion: '1.7',
    tagged: true,
    lang: 'en',
    displayTitle: true,
    // No default font: the pages use only the fonts registered below.
    font: '',
    // PDFKit derives the file id from this metadata, which must depend only on the document.
    info: {
      Title: `Autonomous Execution Proof ${proof_id}`,
      Subject: `sha256:${hashHex(nativeSha256, json)}`,
      Creator: 'svc-verification',
      Producer: 'svc-verification',
      CreationDate: time,
      ModDate: time,
    },
  });
  for (const [name, file] of Object.entries(FONTS)) doc.registerFont(name, file);
  return doc;
}

const WHITE = '#ffffff';
const QR_SIDE = 96;
/** Width of the light border that a QR code needs, in modules (ISO/IEC 18004). */
const QUIET_ZONE = 4;
const GAP = 18;
const PAD = 11;

/** Draws all pages. The legend that explains escapes follows the first section that contains one. */
function drawPdf(sheet: PageWriter, model: PdfModel): void {
  let hasLegend = false;
  const legend = (): void => {
    if (hasLegend || !sheet.hasEscapes) return;
    hasLegend = true;
    drawLegend(sheet);
  };
  drawHead(sheet, model);
  legend();
  for (const section of model.sections) {
    drawSection(sheet, section);
    legend();
  }
  sheet.end();
  drawMargins(sheet, model);
}

function drawHead(sheet: PageWriter, model: PdfModel): void {
  const top = sheet.y;
  drawQr(sheet, model.pageUrl, sheet.left + sheet.width - QR_SIDE, top);
  const width = sheet.width - QR_SIDE - GAP;
  sheet.block('H1', () => {
    sheet.mark(() => sheet.write(TEXT.title, 'Autonomous Execution Proof', sheet.left, top - 4));
  });
  sheet.y = top + TEXT.title.leading;
  drawLabelled(sheet, 'Proof', model.proofId, width, false);
  sheet.block('P', () => drawLines(sheet, sheet.wrapWords(TEXT.small, model.howToCheck, width)));
  sheet.y = Math.max(sheet.y, top + QR_SIDE) + 2;
  drawLabelled(sheet, 'Current status', model.pageUrl, sheet.width, true);
  sheet.y += 8;
  drawVerdict(sheet, model);
}

function drawLabelled(
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

/** Draws a QR code as vectors, with its quiet zone inside the square. */
function drawQr(sheet: PageWriter, url: string, x: number, y: number): void {
  const { modules } = qrcode.create(url, { errorCorrectionLevel: 'M' });
  const { size } = modules;
  const side = QR_SIDE / (size + 2 * QUIET_ZONE);
  const draw = (): void => {
    for (let row = 0; row < size; row++) {
      for (let column = 0; column < size; column++) {
        if (!modules.get(row, column)) continue;
        const [left, top] = [x + (QUIET_ZONE + column) * side, y + (QUIET_ZONE + row) * side];
        sheet.doc.rect(left, top, side, side);
      }
    }
    sheet.doc.fill(INK);
  };
  sheet.block('Figure', () => sheet.mark(draw), `QR code of ${url}`);
}

/** Draws the verdict in a frame, with its headline in white on black if nothing is asserted. */
function drawVerdict(sheet: PageWriter, { headline, verdict }: PdfModel): void {
  const { asserts } = headline;
  const inner = sheet.width - 2 * PAD;
  const lines = sheet.wrapWords(TEXT.headline, headline.text, inner);
  const band = lines.length * TEXT.headline.leading + 2 * (PAD - 3);
  const rows = verdict.flatMap((field) => fieldLines(sheet, field, inner)).length;
  const body = rows * LEADING + verdict.length * AFTER_FIELD;
  const height = band + body + PAD + 3;
  const top = sheet.y;
  sheet.aside(() => {
    const { doc, left, width } = sheet;
    if (asserts) sheet.rule(left, top + band, left + width, top + band, 0.5, HAIRLINE);
    else doc.rect(left, top, width, band).fill(INK);
    doc
      .lineWidth(asserts ? 1 : 2.5)
      .rect(left, top, width, height)
      .stroke(INK);
  });
  sheet.block('H2', () => {
    lines.forEach((line, at) => {
      const y = top + PAD - 2 + at * TEXT.headline.leading;
      sheet.mark(() => sheet.put(line, sheet.left + PAD, y, asserts ? INK : WHITE));
    });
  });
  sheet.y = top + band + PAD - 3;
  for (const field of verdict) drawField(sheet, field, sheet.left + PAD, inner);
  sheet.y = top + height;
}

const LABEL_WIDTH = 92;
const AFTER_LABEL = 4;
const AFTER_FIELD = 3;
const LEADING = TEXT.words.leading;
/** Height of the content that must fit on the page of its heading, in points. */
const KEEP_WITH_HEADING = 40;

function drawSection(sheet: PageWriter, { fields, note, title }: Section): void {
  sheet.y += 13;
  sheet.need(TEXT.heading.leading + 6 + KEEP_WITH_HEADING);
  sheet.block('H2', () => {
    sheet.mark(() => sheet.write(TEXT.heading, title, sheet.left, sheet.y));
  });
  sheet.y += TEXT.heading.leading;
  sheet.aside(() => sheet.rule(sheet.left, sheet.y, sheet.left + sheet.width, sheet.y));
  sheet.y += 6;
  if (note !== undefined) {
    sheet.block('P', () => drawLines(sheet, sheet.wrapWords(TEXT.words, note, sheet.width)));
    sheet.y += AFTER_FIELD;
  }
  for (const field of fields) drawField(sheet, field, sheet.left, sheet.width);
}

function drawField(sheet: PageWriter, field: Field, x: number, width: number): void {
  const lines = fieldLines(sheet, field, width);
  // Keeps the label on one page with up to two lines of its value.
  const kept = Math.min(lines.length, lines[0] === null ? 3 : 2);
  sheet.block('P', () => {
    lines.forEach((line, at) => {
      const isNewPage = sheet.need(LEADING * (at === 0 ? kept : 1));
      sheet.mark(() => {
        if (at === 0) sheet.write(TEXT.label, field.label, x, sheet.y);
        else if (isNewPage) sheet.write(TEXT.small, 'continued', x, sheet.y, GREY);
      });
      if (line !== null) sheet.mark(() => sheet.put(line, x + LABEL_WIDTH, sheet.y));
      sheet.y += LEADING;
    });
  });
  sheet.y += AFTER_FIELD;
}

/** The lines of the values. If the label is wider than its column, a null before them reserves a line for the label. */
function fieldLines(sheet: PageWriter, { label, values }: Field, width: number): (Line | null)[] {
  const lines = values.flatMap((value) =>
    'words' in value
      ? sheet.wrapWords(TEXT.words, value.words, width - LABEL_WIDTH)
      : sheet.wrapExact(value.exact, width - LABEL_WIDTH),
  );
  const isWide = sheet.widthOf(TEXT.label, label) > LABEL_WIDTH - AFTER_LABEL;
  return isWide ? [null, ...lines] : lines;
}

function drawLines(sheet: PageWriter, lines: readonly Line[], x: number = sheet.left): void {
  for (const line of lines) {
    const { leading } = line.kind === 'words' ? line.style : TEXT.exact;
    sheet.need(leading);
    sheet.mark(() => sheet.put(line, x, sheet.y, GREY));
    sheet.y += leading;
  }
}

const LEGEND =
  'on grey is not part of the text. It replaces the character with that Unicode number, which this PDF cannot show or which would change the look of its neighbours. The attached file has the original text.';

function drawLegend(sheet: PageWriter): void {
  const sample = [{ text: '\\u{\u2026}', escaped: true }];
  const lines = sheet.wrapWords(TEXT.small, LEGEND, sheet.width - LABEL_WIDTH);
  sheet.y += 2;
  sheet.need(lines.length * TEXT.small.leading);
  sheet.block('Note', () => {
    sheet.mark(() => sheet.put({ kind: 'exact', pieces: sample }, sheet.left, sheet.y));
    drawLines(sheet, lines, sheet.left + LABEL_WIDTH);
  });
  sheet.y += AFTER_FIELD;
}

const HEADER_Y = 40;
const FOOTER_Y = PAGE.height - 46;

function drawMargins(sheet: PageWriter, { headline, proofId }: PdfModel): void {
  const { doc } = sheet;
  const { asserts, text } = headline;
  const right = sheet.left + sheet.width;
  const { start, count } = doc.bufferedPageRange();
  for (let n = 1; n <= count; n++) {
    doc.switchToPage(start + n - 1);
    doc.markContent('Artifact', { type: 'Pagination' });
    if (n > 1 || !asserts) {
      const width = sheet.widthOf(TEXT.label, text);
      if (!asserts) doc.rect(right - width - 6, HEADER_Y - 3, width + 12, 15).fill(INK);
      sheet.write(TEXT.label, text, right - width, HEADER_Y, asserts ? GREY : WHITE);
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
