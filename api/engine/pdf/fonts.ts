import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { coverageOf, type Covers } from './coverage.js';

/** What the paper is set in: its own words in `sans`, everything that a document says in `mono`. */
export const FONT_FILES = {
  sans: 'DejaVuSans.ttf',
  sansBold: 'DejaVuSans-Bold.ttf',
  mono: 'DejaVuSansMono.ttf',
  monoBold: 'DejaVuSansMono-Bold.ttf',
} as const;

export type FontName = keyof typeof FONT_FILES;

export interface Fonts {
  files: Record<FontName, Uint8Array>;
  /** Whether a character of a document can be shown, plain and emphasised. */
  covers: Covers;
}

/** Every character of the monospaced fonts is so wide, in units of the font size. */
export const MONO_ADVANCE = 1233 / 2048;

/** Reads the fonts from the package that ships them; never from the machine, whose own may differ. */
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
