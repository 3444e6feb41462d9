import { equalBytes } from '#protocol/bytes';
import { TILE_WIDTH } from '#protocol/tiles';
import { tileRoot } from '#protocol/tiles/append';
import { nativeSha256 } from '#runtime/crypto/node';
import { split } from './tree.js';

/** Two sources for the hashes of a range of leaves, and the evidence to decide between them. */
export interface TileClaims {
  /** From the log rows; null for a missing row. */
  rows: readonly (Uint8Array | null)[];
  /** From the stored tile; null when missing. */
  stored: Uint8Array | null;
  /** The root of these leaves in the tile above, when the tile is full. */
  parent: Uint8Array | null;
  /** Whether a signed checkpoint covers exactly these leaves; null without such a checkpoint. */
  isSigned: (hashes: readonly Uint8Array[]) => boolean | null;
  /** Whether a leaf's row is consistent: its signature and hashes match. */
  isSound: (place: number) => boolean;
}

export interface SettledTile {
  /** The hashes of the leaves; null when a row is missing and no tile has its hash. */
  hashes: Uint8Array[] | null;
  /** Positions of rows that differ from the log. */
  wrongRows: Set<number>;
  isTileWrong: boolean;
}

/**
 * Decides which source is damaged when they differ, so that one flipped byte gives one finding. The
 * source that the tile above or a signed checkpoint confirms is right. Without evidence, a consistent
 * row wins over the tile.
 */
export function settleTile(claims: TileClaims): SettledTile {
  const { rows, stored, isSound } = claims;
  const count = rows.length;
  const tile = stored === null ? [] : split(stored).slice(0, count);
  const differing = rows.flatMap((row, place) => {
    const other = tile[place];
    return row !== null && other !== undefined && equalBytes(row, other) ? [] : [place];
  });
  if (differing.length === 0) return { hashes: tile, wrongRows: new Set(), isTileWrong: false };
  const whole = rows.filter((row) => row !== null);
  if (whole.length === count && isConfirmed(claims, whole)) {
    return { hashes: whole, wrongRows: new Set(), isTileWrong: true };
  }
  if (tile.length === count && isConfirmed(claims, tile)) {
    return { hashes: tile, wrongRows: new Set(differing), isTileWrong: false };
  }
  const wrongRows = new Set(
    differing.filter(
      (place) => rows[place] === null || (tile[place] !== undefined && !isSound(place)),
    ),
  );
  const hashes = rows.map((row, place) => (wrongRows.has(place) ? tile[place] : row));
  return {
    hashes: hashes.every((hash) => hash !== undefined && hash !== null) ? hashes : null,
    wrongRows,
    isTileWrong: differing.some((place) => !wrongRows.has(place)),
  };
}

function isConfirmed({ parent, isSigned }: TileClaims, hashes: readonly Uint8Array[]): boolean {
  if (
    parent !== null &&
    hashes.length === TILE_WIDTH &&
    equalBytes(tileRoot(nativeSha256, Buffer.concat(hashes)), parent)
  ) {
    return true;
  }
  return isSigned(hashes) === true;
}
