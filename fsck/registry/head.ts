import { equalBytes, toHex } from '#protocol/bytes';
import { openCheckpointNote } from '#protocol/checkpoint';
import { ProtocolError } from '#protocol/errors';
import { nativeVerify } from '#runtime/crypto/node';
import type { Pool } from '#sql/db/transaction';
import { asOfOneMoment, type CheckpointRow, readHead } from '#sql/fsck/log';
import type { Report } from '../findings.js';
import type { RegistryContext } from './context.js';

/** Returns the size of the log; reports rows beyond it, which the log lost or never had. */
export async function checkHead(sql: Pool, report: Report): Promise<number> {
  const head = await asOfOneMoment(sql, readHead);
  const { size } = head;
  for (const index of head.entriesBeyond) {
    report('leaf_beyond_head', `svc.log_entry leaf_index=${index}`, `no leaf at ${size} or beyond`);
  }
  for (const { level, index, hashes } of head.tilesBeyond) {
    const where = `svc.tile level=${level} tile_index=${index}`;
    const expected = `a tile of a log of ${size} leaves, found ${hashes} hashes`;
    report('tile_beyond_head', where, expected);
  }
  if (head.lastCheckpoint > head.size) {
    const where = `svc.checkpoint tree_size=${head.lastCheckpoint}`;
    report('checkpoint_beyond_log', where, `at most ${size} leaves, as the log has`);
  }
  if (head.lastVerdict > head.size) {
    const where = `svc.verdict last_index=${head.lastVerdict - 1}`;
    report('verdict_beyond_log', where, `verdicts on at most ${size} leaves`);
  }
  return head.size;
}

/**
 * The root of a stored checkpoint; reports and returns null when no pinned key signed it. Also reports
 * columns that differ from the note.
 */
export function signedRoot(
  { logVkeys, findings }: RegistryContext,
  { treeSize, root, note }: CheckpointRow,
): Uint8Array | null {
  const where = `svc.checkpoint tree_size=${treeSize}`;
  try {
    const { checkpoint } = openCheckpointNote(note, logVkeys, logVkeys[0].name, nativeVerify);
    if (checkpoint.size !== treeSize || !equalBytes(checkpoint.root, root)) {
      const signed = `size ${checkpoint.size} and root ${toHex(checkpoint.root)}`;
      findings.add('checkpoint_altered', where, `columns that match the signed note, ${signed}`);
    }
    return checkpoint.size === treeSize ? checkpoint.root : null;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a note signed by ${logVkeys[0].name}: ${error.message}`;
    findings.add('checkpoint_unverifiable', where, expected);
    return null;
  }
}
