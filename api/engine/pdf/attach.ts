type Doc = PDFKit.PDFDocument;

interface Attachment {
  name: string;
  json: Uint8Array;
  /** The time of the verdict, so that equal requests give equal bytes. */
  time: Date;
}

/** Attaches the export, byte for byte, as the source data of the PDF (ISO 32000-2, AFRelationship). */
export function attachExport(doc: Doc, { json, name, time }: Attachment): void {
  const options = {
    name,
    type: 'application/json',
    description: 'The JSON export of the proof in this PDF, for verification and replay.',
    relationship: 'Data',
    creationDate: time,
    modifiedDate: time,
  };
  doc.file(Buffer.from(json), options);
}
