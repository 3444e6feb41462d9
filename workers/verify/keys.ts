import { parseEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/key-state';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { inclusionFromTiles, type TileReader } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto';
import { keyEntries } from '#sql/log';
import type { VerifyContext } from './context.js';

/** The tree that the key entries must be in, as the verifier itself established it. */
export interface TrustedTree {
  size: number;
  root: Uint8Array;
}

/**
 * The key entries below `tree.size`, each proved to be in the tree. When one is not, or cannot be
 * read, there are none: a lost `compromise` must never make a key good again, so without a sound
 * history of keys no signature counts.
 */
export async function trustedKeys(
  context: VerifyContext,
  tree: TrustedTree,
  read: TileReader,
): Promise<KeyedEntry[]> {
  const keys: KeyedEntry[] = [];
  for (const { leafIndex, body } of await keyEntries(context.sql)) {
    if (leafIndex >= tree.size) break;
    try {
      const path = await inclusionFromTiles(nativeSha256, leafIndex, tree.size, read);
      const hash = leafHash(nativeSha256, body);
      const claim = { index: leafIndex, size: tree.size, leafHash: hash, path, root: tree.root };
      if (!verifyInclusion(nativeSha256, claim)) throw new Error('it is not in the tree');
      keys.push({ leafIndex, entry: parseEntry(body) });
    } catch (error) {
      context.log.error({ err: error, leaf_index: leafIndex }, 'ALARM: a key entry is not sound');
      return [];
    }
  }
  return keys;
}
