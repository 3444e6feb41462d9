import { loadFonts, renderPdf, type PdfRequest } from './render.js';

const fonts = loadFonts();

export default function render(request: PdfRequest): Promise<Uint8Array> {
  return renderPdf(request, fonts);
}
