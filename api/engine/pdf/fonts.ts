import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { coverageOf, type Covers } from './coverage.js';

/** Fonts of the PDF: fixed text in `sans`, text of the document in `mono`. */
export const FONT_FILES = {
  sans: 'DejaVuSans.ttf',
  sansBold: 'DejaVuSans-Bold.ttf',
  mono: 'DejaVuSansMono.ttf',
  monoBold: 'DejaVuSansMono-Bold.ttf',
} as const;

export type FontName = keyof typeof FONT_FILES;

export interface Fonts {
  files: Record<FontName, Uint8Array>;
  /** Whether the mono fonts have a character. */
  covers: Covers;
}

/** Character width of the monospaced fonts, in units of the font size. */
export const MONO_ADVANCE = 1233 / 2048;

/** Reads the fonts from their package: system fonts could differ and change the bytes. */
export function loadFonts(): Fonts {
  const { resolve } = createRequire(import.meta.url);
  const read = (name: FontName): Uint8Array =>
    readFileSync(resolve(`dejavu-fonts-ttf/ttf/${FONT_FILES[name]}`));
  const mono = read('mono');
  return {
    files: { sans: read('sans'), sansBold: read('sansBold'), mono, monoBold: read('monoBold') },
    covers: coverageOf(mono),
  };
}
