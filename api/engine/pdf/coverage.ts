/** Whether a font has a glyph for a code point. */
export type Covers = (codePoint: number) => boolean;

const UNICODE_FULL = { platform: 3, encoding: 10, format: 12 } as const;

/**
 * Reads the code points of a TrueType font (OpenType `cmap`, format 12), because a missing character
 * would silently render as an empty box or nothing.
 */
export function coverageOf(font: Uint8Array): Covers {
  const view = new DataView(font.buffer, font.byteOffset, font.byteLength);
  const groups = groupsAt(view, subtableOf(view, tableOf(view, 'cmap')));
  return (codePoint) => {
    const group = groups.findLast(({ first }) => first <= codePoint);
    return group !== undefined && codePoint <= group.last;
  };
}

function tableOf(view: DataView, wanted: string): number {
  const tables = view.getUint16(4);
  for (let i = 0; i < tables; i++) {
    const record = 12 + 16 * i;
    const tag = String.fromCharCode(...[0, 1, 2, 3].map((byte) => view.getUint8(record + byte)));
    if (tag === wanted) return view.getUint32(record + 8);
  }
  throw new Error(`the font has no table ${wanted}`);
}

function subtableOf(view: DataView, cmap: number): number {
  const { platform, encoding, format } = UNICODE_FULL;
  const subtables = view.getUint16(cmap + 2);
  for (let i = 0; i < subtables; i++) {
    const record = cmap + 4 + 8 * i;
    if (view.getUint16(record) !== platform || view.getUint16(record + 2) !== encoding) continue;
    const subtable = cmap + view.getUint32(record + 4);
    if (view.getUint16(subtable) === format) return subtable;
  }
  throw new Error('the font has no cmap of format 12');
}

/** In ascending order, without overlap. */
function groupsAt(view: DataView, subtable: number): { first: number; last: number }[] {
  return Array.from({ length: view.getUint32(subtable + 12) }, (_, i) => {
    const group = subtable + 16 + 12 * i;
    return { first: view.getUint32(group), last: view.getUint32(group + 4) };
  });
}
