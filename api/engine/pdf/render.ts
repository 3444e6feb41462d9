import PDFDocument from 'pdfkit';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { attachExport } from './attach.js';
import {
  drawArtifacts,
  drawChain,
  drawHead,
  drawLegend,
  drawMargins,
  drawSection,
} from './draw.js';
import type { Fonts } from './fonts.js';
import { buildPdfModel, type PdfModel } from './model.js';
import { PageWriter } from './page-writer.js';

export interface PdfRequest {
  /** The export document of `format=json`. */
  json: Uint8Array;
  /** Public lookup of the proof's current status. */
  lookupUrl: string;
}

/** Renders one export as a PDF. Deterministic: reads only the attached bytes, and no clock. */
export async function renderPdf(
  { json, lookupUrl }: PdfRequest,
  fonts: Fonts,
): Promise<Uint8Array> {
  const document = proofExportSchema.parse(parseStrict(json));
  const paper = buildPdfModel(document, json, lookupUrl);
  const time = new Date(parseTime(document.verdict.verified_at ?? document.aep.accepted_at));
  const doc = openDocument(document, json, time, fonts);
  draw(new PageWriter(doc, fonts), paper);
  attachExport(doc, { name: `${paper.proofId}.json`, json, time });
  doc.end();
  const chunks: Uint8Array[] = [];
  for await (const chunk of doc) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks);
}

function openDocument(
  { proof_id }: ProofExport,
  json: Uint8Array,
  time: Date,
  { files }: Fonts,
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
  for (const [name, file] of Object.entries(files)) doc.registerFont(name, Buffer.from(file));
  return doc;
}

function draw(sheet: PageWriter, paper: PdfModel): void {
  let hasLegend = false;
  const legend = (): void => {
    if (hasLegend || !sheet.hasEscapes) return;
    hasLegend = true;
    drawLegend(sheet);
  };
  drawHead(sheet, paper);
  legend();
  drawSection(sheet, paper.parties);
  legend();
  drawSection(sheet, paper.decision);
  legend();
  drawArtifacts(sheet, paper.artifacts);
  drawChain(sheet, paper.chain, paper.chainEnd);
  for (const section of [paper.log, paper.hashes, paper.keys]) {
    drawSection(sheet, section);
    legend();
  }
  sheet.end();
  drawMargins(sheet, paper);
}
