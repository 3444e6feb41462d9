import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseEntry } from '#protocol/entries';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';

/** Proof ids of a published log, read from its entry bundles as an outsider would. */
export interface Samples {
  first: string;
  middle: string;
  last: string;
}

export async function sampleProofs(snapshotDir: string, treeSize: number): Promise<Samples> {
  const near = async (leaf: number, step: 1 | -1): Promise<string> => {
    for (let at = leaf; at >= 0 && at < treeSize; at += step) {
      const proofId = await proofAt(snapshotDir, treeSize, at);
      if (proofId !== null) return proofId;
    }
    throw new Error('the log holds no proof');
  };
  return {
    first: await near(0, 1),
    middle: await near(Math.floor(treeSize / 2), 1),
    last: await near(treeSize - 1, -1),
  };
}

/** Null for a leaf that is no proof. */
async function proofAt(dir: string, treeSize: number, leaf: number): Promise<string | null> {
  const index = Math.floor(leaf / TILE_WIDTH);
  const path = entriesPath(index, tileWidth(0, index, treeSize));
  const bytes = decodeEntryBundle(await readFile(join(dir, path)))[leaf % TILE_WIDTH];
  if (bytes === undefined) throw new Error(`${path} holds no leaf ${String(leaf)}`);
  const entry = parseEntry(bytes);
  return entry.type === 'proof' ? entry.proof_id : null;
}
