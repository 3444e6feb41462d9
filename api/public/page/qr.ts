import { create } from 'qrcode';
import { html, type Html } from './html.js';

/** Width of the quiet zone in modules (ISO/IEC 18004). */
const QUIET = 4;

/** Renders an SVG QR code, dark on light in both colour schemes: not every reader accepts the inverse. */
export function qrCode(text: string, label: string): Html {
  const { modules } = create(text, { errorCorrectionLevel: 'M' });
  const { size, data } = modules;
  let path = '';
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      if (data[y * size + x] !== 1) continue;
      const from = x;
      while (x + 1 < size && data[y * size + x + 1] === 1) x++;
      const width = x + 1 - from;
      path += `M${from + QUIET} ${y + QUIET}h${width}v1h-${width}z`;
    }
  }
  const side = size + 2 * QUIET;
  return html`<svg
    class="qr"
    role="img"
    aria-label="${label}"
    viewBox="0 0 ${side} ${side}"
    shape-rendering="crispEdges"
  >
    <rect width="${side}" height="${side}" fill="#fff" />
    <path d="${path}" fill="#000" />
  </svg>`;
}
