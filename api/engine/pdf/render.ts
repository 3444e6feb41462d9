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
  /** An export document, as `format=json` gives it. */
  json: Uint8Array;
  /** Where the public is told of the proof's current standing. */
  lookupUrl: string;
}

/**
 * The paper of one export document. What is printed is read from the bytes that go along inside,
 * and nothing else is looked at, no clock either: the same request gives the same bytes.
 */
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
    // Compressed bytes differ between versions of zlib and between processors.
    compress: false,
    pdfVersion: '1.7',
    tagged: true,
    lang: 'en',
    displayTitle: true,
    // No font but those that are registered below.
    font: '',
    // The file's id is made of these, so it depends on the document and on nothing else.
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
