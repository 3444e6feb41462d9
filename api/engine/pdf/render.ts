import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import PDFDocument from 'pdfkit';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { drawPdf } from './draw.js';
import { buildPdfModel } from './model.js';
import { PageWriter, type FontName } from './page-writer.js';

export interface PdfRequest {
  json: Uint8Array;
  /** Public lookup of the proof's current status. */
  lookupUrl: string;
}

export type Fonts = Record<FontName, Buffer>;

/** Reads the fonts from their package: system fonts could differ and change the bytes. */
export function loadFonts(): Fonts {
  const { resolve } = createRequire(import.meta.url);
  const read = (file: string) => readFileSync(resolve(`dejavu-fonts-ttf/ttf/${file}.ttf`));
  return {
    sans: read('DejaVuSans'),
    sansBold: read('DejaVuSans-Bold'),
    mono: read('DejaVuSansMono'),
    monoBold: read('DejaVuSansMono-Bold'),
  };
}

/** Renders one export as a PDF. Deterministic: reads only the attached bytes, and no clock. */
export async function renderPdf(
  { json, lookupUrl }: PdfRequest,
  fonts: Fonts,
): Promise<Uint8Array> {
  const document = proofExportSchema.parse(parseStrict(json));
  const time = new Date(parseTime(document.verdict.verified_at ?? document.aep.accepted_at));
  const doc = openDocument(document, json, time, fonts);
  drawPdf(new PageWriter(doc), buildPdfModel(document, json, lookupUrl));
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

function openDocument(
  { proof_id }: ProofExport,
  json: Uint8Array,
  time: Date,
  fonts: Fonts,
): PDFKit.PDFDocument {
  const doc = new PDFDocument({
    size: 'A4',
    margin: 0,
    autoFirstPage: false,
    bufferPages: true,
    // zlib output differs between versions and processors.
    compress: false,
    pdfVersion: '1.7',
    tagged: true,
    lang: 'en',
    displayTitle: true,
    // No default font: only those registered below.
    font: '',
    // PDFKit derives the file id from these, so they must depend only on the document.
    info: {
      Title: `Autonomous Execution Proof ${proof_id}`,
      Subject: `sha256:${hashHex(nativeSha256, json)}`,
      Creator: 'svc-verification',
      Producer: 'svc-verification',
      CreationDate: time,
      ModDate: time,
    },
  });
  for (const [name, file] of Object.entries(fonts)) doc.registerFont(name, file);
  return doc;
}
