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

/** The tiles, the checkpoint and the leaf do not fit each other. */
export class InclusionMismatchError extends Error {
  override readonly name = 'InclusionMismatchError';
}

/**
 * Proves a leaf under a signed checkpoint, the latest unless another is asked for, from a handful of
 * tiles whatever the size of the log, and checks the proof as its receiver will before anybody
 * receives it.
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
      `leaf ${leafIndex} does not lead to the root of checkpoint ${treeSize}`,
    );
  }
  return { leafHash: hash, under: { checkpoint, path } };
}

/** The columns beside a note must be what the note says, since the note is what is handed out. */
function requireNoteOf({ note, treeSize, root }: StoredCheckpoint): void {
  const { size, root: signed } = parseCheckpoint(note.slice(0, note.lastIndexOf('\n\n') + 1));
  if (size !== treeSize || !equalBytes(signed, root)) {
    throw new InclusionMismatchError(`the note of checkpoint ${treeSize} says something else`);
  }
}

/**
 * The log key to check a checkpoint with: a log that changed its key keeps checkpoints of both. For
 * a checkpoint by none that this engine was told of it is the one in use.
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
