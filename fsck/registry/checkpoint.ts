import { equalBytes, toHex } from '#protocol/bytes';
import { openCheckpointNote } from '#protocol/checkpoint';
import { ProtocolError } from '#protocol/errors';
import { nativeVerify } from '#runtime/crypto';
import type { CheckpointRow } from '#sql/fsck/chunk';
import type { RegistryContext } from './context.js';

/**
 * The root that a stored checkpoint was signed for; null when nobody pinned signed it, which is told.
 * The columns beside the note are told when they are not what it says.
 */
export function signedRoot(
  { logVkeys, findings }: RegistryContext,
  { treeSize, root, note }: CheckpointRow,
): Uint8Array | null {
  const where = `svc.checkpoint tree_size=${String(treeSize)}`;
  try {
    const { checkpoint } = openCheckpointNote(note, logVkeys, logVkeys[0].name, nativeVerify);
    if (checkpoint.size !== treeSize || !equalBytes(checkpoint.root, root)) {
      const said = `size ${String(checkpoint.size)} and root ${toHex(checkpoint.root)}`;
      findings.add('checkpoint_altered', where, `columns that say what was signed, ${said}`);
    }
    return checkpoint.size === treeSize ? checkpoint.root : null;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a note signed by ${logVkeys[0].name}: ${error.message}`;
    findings.add('checkpoint_unverifiable', where, expected);
    return null;
  }
}
