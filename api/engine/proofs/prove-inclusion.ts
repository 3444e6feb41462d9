import { equalBytes, toBase64 } from '#protocol/bytes';
import { parseCheckpoint } from '#protocol/checkpoint';
import { proofEntryBytes } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { openNote, parseVkey } from '#protocol/note';
import type { InclusionProof } from '#protocol/schemas/proof-export';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { inclusionFromTiles } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { Db } from '#sql/db/transaction';
import { latestCheckpoint, type StoredCheckpoint } from '#sql/log/checkpoints';
import { readTile } from '#sql/log/log';
import type { StoredProof } from '#sql/proofs/read';
import type { EngineContext } from '../context.js';
import { Problem, retryAfter } from '../http/problem.js';
import { altered } from './stored-proof.js';

export interface ProvenInclusion {
  leafHash: Uint8Array;
  /** Null while no checkpoint covers the leaf. */
  under: { checkpoint: StoredCheckpoint; path: Uint8Array[]; proof: InclusionProof } | null;
}

/** Tiles, checkpoint and leaf are inconsistent. */
class InclusionMismatchError extends Error {
  override readonly name = 'InclusionMismatchError';
}

/**
 * Proves a leaf under a signed checkpoint, by default the latest, from O(log n) tiles. Verifies the
 * proof before returning it.
 *
 * @throws Problem integrity_failure
 */
export async function proveInclusion(
  sql: Db,
  stored: StoredProof,
  entry: ProofEntry,
  choose: (sql: Db) => Promise<StoredCheckpoint | null> = latestCheckpoint,
): Promise<ProvenInclusion> {
  try {
    return await prove(sql, stored.leafIndex, entry, await choose(sql));
  } catch (error) {
    if (error instanceof InclusionMismatchError || error instanceof ProtocolError) {
      throw altered(stored, 'the log', error);
    }
    throw error;
  }
}

async function prove(
  sql: Db,
  index: number,
  entry: ProofEntry,
  checkpoint: StoredCheckpoint | null,
): Promise<ProvenInclusion> {
  const hash = leafHash(nativeSha256, proofEntryBytes(entry));
  if (checkpoint === null || index >= checkpoint.treeSize) return { leafHash: hash, under: null };

  requireNoteOf(checkpoint);
  const { note, treeSize, root } = checkpoint;
  const path = await inclusionFromTiles(nativeSha256, index, treeSize, async (level, at) => {
    const tile = await readTile(sql, level, at);
    if (tile === null) throw new InclusionMismatchError(`tile ${level}/${at} is missing`);
    return tile;
  });
  if (!verifyInclusion(nativeSha256, { index, size: treeSize, leafHash: hash, path, root })) {
    throw new InclusionMismatchError(
      `the path of leaf ${index} does not give the root of checkpoint ${treeSize}`,
    );
  }
  const proof = {
    leaf_index: index,
    tree_size: treeSize,
    path: path.map(toBase64),
    checkpoint: note,
  };
  return { leafHash: hash, under: { checkpoint, path, proof } };
}

/** Clients get the note, so the columns used for the proof must equal its content. */
function requireNoteOf({ note, treeSize, root }: StoredCheckpoint): void {
  const { size, root: signed } = parseCheckpoint(note.slice(0, note.lastIndexOf('\n\n') + 1));
  if (size !== treeSize || !equalBytes(signed, root)) {
    throw new InclusionMismatchError(`the note of checkpoint ${treeSize} differs from its columns`);
  }
}

export function pendingCheckpoint(): Problem {
  return new Problem(
    'pending_checkpoint',
    'No signed checkpoint covers this proof yet. Retry after the publisher has signed one.',
    retryAfter(1),
  );
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
