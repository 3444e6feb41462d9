import { getDocument } from 'pdfjs-dist/legacy/build/pdf.mjs';

export interface ReadPdf {
  /** The text of each page, in the order in which it was drawn, pieces divided by newlines. */
  pages: string[];
  attachments: Record<string, Uint8Array>;
  info: Record<string, unknown>;
  fingerprint: string;
  links: string[];
}

/** Reads a PDF with a reader that is none of ours. */
export async function readPdf(bytes: Uint8Array): Promise<ReadPdf> {
  const task = getDocument({ data: new Uint8Array(bytes), verbosity: 0, useSystemFonts: false });
  const pdf = await task.promise;
  const pages: string[] = [];
  const links: string[] = [];
  for (let number = 1; number <= pdf.numPages; number++) {
    const page = await pdf.getPage(number);
    const { items } = await page.getTextContent();
    pages.push(items.flatMap((item) => ('str' in item ? [item.str] : [])).join('\n'));
    for (const { url } of (await page.getAnnotations()) as { url?: string }[]) {
      if (url !== undefined) links.push(url);
    }
  }
  const attached = ((await pdf.getAttachments()) ?? {}) as Record<
    string,
    { filename: string; content: Uint8Array }
  >;
  const { info } = await pdf.getMetadata();
  const fingerprint = pdf.fingerprints[0] ?? '';
  await task.destroy();
  return {
    pages,
    attachments: Object.fromEntries(
      Object.values(attached).map(({ filename, content }) => [filename, content]),
    ),
    info: info as Record<string, unknown>,
    fingerprint,
    links,
  };
}
