import { randomInt } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseEntry } from '#protocol/entries';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';

/** Leaves of the published log, `from` included and `to` not. */
export interface LeafRange {
  from: number;
  to: number;
}

/**
 * Ids of `count` proofs at random places of a part of the published log, read from its entry bundles
 * as an outsider would; fewer where leaves are no proofs, none of them twice.
 */
export async function publishedIds(
  snapshotDir: string,
  treeSize: number,
  { from, to }: LeafRange,
  count: number,
): Promise<string[]> {
  const bundles = new Map<number, Set<number>>();
  for (const leaf of randomLeaves(from, to, count)) {
    const index = Math.floor(leaf / TILE_WIDTH);
    bundles.set(index, (bundles.get(index) ?? new Set()).add(leaf % TILE_WIDTH));
  }
  const ids: string[] = [];
  for (const [index, places] of bundles) {
    const path = entriesPath(index, tileWidth(0, index, treeSize));
    const entries = decodeEntryBundle(await readFile(join(snapshotDir, path)));
    for (const place of places) {
      const bytes = entries[place];
      if (bytes === undefined) throw new Error(`${path} holds no leaf ${String(place)}`);
      const entry = parseEntry(bytes);
      if (entry.type === 'proof') ids.push(entry.proof_id);
    }
  }
  return ids;
}

function randomLeaves(from: number, to: number, count: number): Set<number> {
  const leaves = new Set<number>();
  const wanted = Math.min(count, to - from);
  while (leaves.size < wanted) leaves.add(randomInt(from, to));
  return leaves;
}
