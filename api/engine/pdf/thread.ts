import { loadFonts } from './fonts.js';
import { renderPdf, type PdfRequest } from './render.js';

const fonts = loadFonts();

/** What a thread of the renderer runs, again and again. */
export default function render(request: PdfRequest): Promise<Uint8Array> {
  return renderPdf(request, fonts);
}
