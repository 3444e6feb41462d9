type Doc = PDFKit.PDFDocument;

interface Attachment {
  name: string;
  json: Uint8Array;
  /** The proof's own: there is no other time in the document. */
  time: Date;
}

/**
 * Puts the export document inside the PDF, byte for byte, as the data that the paper was made from
 * (ISO 32000-2, AFRelationship).
 */
export function attachExport(doc: Doc, { json, name, time }: Attachment): void {
  const options = {
    name,
    type: 'application/json',
    description: 'The proof that this paper shows, as it is exported, verified and replayed.',
    relationship: 'Data',
    creationDate: time,
    modifiedDate: time,
  };
  doc.file(Buffer.from(json), options);
}
