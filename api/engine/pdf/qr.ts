import qrcode from 'qrcode';

/** A rectangle of dark modules, in modules, from the symbol's upper left corner. */
export interface DarkRun {
  x: number;
  y: number;
  width: number;
}

export interface QrSymbol {
  /** Modules along each side, without the quiet zone. */
  size: number;
  dark: DarkRun[];
}

/** Light modules required around the symbol (ISO/IEC 18004). */
export const QUIET_ZONE = 4;

/** QR code of a URL as runs of dark modules, for vector drawing. */
export function qrOf(url: string): QrSymbol {
  const { modules } = qrcode.create(url, { errorCorrectionLevel: 'M' });
  const { size } = modules;
  const dark: DarkRun[] = [];
  for (let y = 0; y < size; y++) {
    let run: DarkRun | null = null;
    for (let x = 0; x < size; x++) {
      if (!modules.get(y, x)) {
        run = null;
      } else if (run === null) {
        run = { x, y, width: 1 };
        dark.push(run);
      } else {
        run.width += 1;
      }
    }
  }
  return { size, dark };
}
