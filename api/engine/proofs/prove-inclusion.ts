import { equalBytes } from '#protocol/bytes';
import { parseCheckpoint } from '#protocol/checkpoint';
import { proofEntryBytes } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { openNote, parseVkey } from '#protocol/note';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { inclusionFromTiles } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { Db } from '#sql/db/transaction';
import { latestCheckpoint, type StoredCheckpoint } from '#sql/log/checkpoints';
import { readTile } from '#sql/log/log';
import type { EngineContext } from '../context.js';

export interface ProvenInclusion {
  leafHash: Uint8Array;
  /** Null while no checkpoint covers the leaf. */
  under: { checkpoint: StoredCheckpoint; path: Uint8Array[] } | null;
}

/** Tiles, checkpoint and leaf are inconsistent. */
export class InclusionMismatchError extends Error {
  override readonly name = 'InclusionMismatchError';
}

/**
 * Proves a leaf under a signed checkpoint, by default the latest, from O(log n) tiles. Verifies the
 * proof before returning it.
 */
export async function proveInclusion(
  sql: Db,
  leafIndex: number,
  entry: ProofEntry,
  choose: (sql: Db) => Promise<StoredCheckpoint | null> = latestCheckpoint,
): Promise<ProvenInclusion> {
  const hash = leafHash(nativeSha256, proofEntryBytes(entry));
  const checkpoint = await choose(sql);
  if (checkpoint === null || leafIndex >= checkpoint.treeSize) {
    return { leafHash: hash, under: null };
  }

  requireNoteOf(checkpoint);
  const { treeSize, root } = checkpoint;
  const path = await inclusionFromTiles(nativeSha256, leafIndex, treeSize, async (level, index) => {
    const tile = await readTile(sql, level, index);
    if (tile === null) throw new InclusionMismatchError(`tile ${level}/${index} is missing`);
    return tile;
  });
  const claim = { index: leafIndex, size: treeSize, leafHash: hash, path, root };
  if (!verifyInclusion(nativeSha256, claim)) {
    throw new InclusionMismatchError(
      `the path of leaf ${leafIndex} does not give the root of checkpoint ${treeSize}`,
    );
  }
  return { leafHash: hash, under: { checkpoint, path } };
}

/** Clients get the note, so the columns used for the proof must equal its content. */
function requireNoteOf({ note, treeSize, root }: StoredCheckpoint): void {
  const { size, root: signed } = parseCheckpoint(note.slice(0, note.lastIndexOf('\n\n') + 1));
  if (size !== treeSize || !equalBytes(signed, root)) {
    throw new InclusionMismatchError(`the note of checkpoint ${treeSize} differs from its columns`);
  }
}

/**
 * The log key that signed a checkpoint: after a key rotation, older checkpoints verify with a retired
 * key. Falls back to the current key.
 */
export function vkeyFor(
  note: string,
  { logVkey, retiredLogVkeys }: Pick<EngineContext, 'logVkey' | 'retiredLogVkeys'>,
): string | null {
  if (logVkey === null || retiredLogVkeys.length === 0) return logVkey;
  for (const vkey of [logVkey, ...retiredLogVkeys]) {
    try {
      openNote(note, [parseVkey(vkey, nativeSha256)], nativeVerify);
      return vkey;
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
    }
  }
  return logVkey;
}
