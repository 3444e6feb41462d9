import type { TileReader } from '#protocol/tiles';
import type { Db } from '#sql/db';
import { readTile } from '#sql/log';

/** Reads each stored tile once. A tile that does not exist is empty, and fails whoever needs it. */
export function tileCache(sql: Db): TileReader {
  const tiles = new Map<string, Promise<Uint8Array>>();
  return (level, index) => {
    const name = `${level}/${index}`;
    const known = tiles.get(name);
    if (known !== undefined) return known;
    const tile = readTile(sql, level, index).then((bytes) => bytes ?? new Uint8Array());
    tiles.set(name, tile);
    return tile;
  };
}
