import { equalBytes } from '#protocol/bytes';
import { TILE_WIDTH } from '#protocol/tiles';
import { tileRoot } from '#protocol/tiles/append';
import { nativeSha256 } from '#runtime/crypto/node';
import { split } from './tree.js';

/** Two sources that say what a run of leaves hashes to, and what can decide between them. */
export interface TileClaims {
  /** By the rows of the log; null where one is missing. */
  rows: readonly (Uint8Array | null)[];
  /** By the stored tile; null when there is none. */
  stored: Uint8Array | null;
  /** The root of these leaves by the tile above, when the tile is full. */
  parent: Uint8Array | null;
  /** Whether a checkpoint that was signed has just these leaves; null when none can say. */
  isSigned: (hashes: readonly Uint8Array[]) => boolean | null;
  /** Whether the row of a leaf is sound by itself, as one whose signature and hashes fit is. */
  isSound: (place: number) => boolean;
}

export interface SettledTile {
  /** What the leaves hash to; null when a row is missing and no tile says it. */
  hashes: Uint8Array[] | null;
  /** Places of rows that are not what the log holds there. */
  wrongRows: Set<number>;
  isTileWrong: boolean;
}

/**
 * Decides which of the two is damaged when they differ, so that one flipped byte is one finding: what
 * the tile above or a signed checkpoint confirms is right. Where neither can, a row that is sound by
 * itself is believed before the tile.
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
