/** The log as C2SP tlog-tiles: tile height 8, SHA-256, entry bundles. */
export { extendTiles, tilesForAppend, type Tile } from './tiles/append.js';
export { decodeEntryBundle, encodeEntryBundle } from './tiles/entry-bundle.js';
export {
  entriesPath,
  FULL_TILE_BYTES,
  nodesAtLevel,
  TILE_HEIGHT,
  TILE_WIDTH,
  tilePath,
  tilesBetween,
  tileWidth,
  type TileCoordinate,
  type TileSlice,
} from './tiles/layout.js';
export {
  consistencyFromTiles,
  hashAt,
  inclusionFromTiles,
  rootFromTiles,
  type TileReader,
} from './tiles/read.js';
