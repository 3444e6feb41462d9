import { openCheckpointNote } from '#protocol/checkpoint';
import type { Ed25519Verify } from '#protocol/ed25519';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import { FatalPublishError } from './stopped.js';
import type { TreeHead } from './tree.js';

/**
 * The head that a checkpoint kept elsewhere was signed for. Where database and directory went back
 * together, it alone knows of the leaves that are gone.
 */
export function keptCheckpoint(
  note: string | undefined,
  { log }: SnapshotTrust,
  verify: Ed25519Verify,
): TreeHead | null {
  if (note === undefined) return null;
  try {
    const { size, root } = openCheckpointNote(note, log, log[0].name, verify).checkpoint;
    return { size, root };
  } catch (cause) {
    throw new FatalPublishError(
      'checkpoint_unverifiable',
      `TRUSTED_CHECKPOINT is no checkpoint of ${log[0].name} that this publisher's log key signed. ` +
        'Name one of this log; if its key was changed since, name the earlier one in LOG_RETIRED_VKEYS.',
      { cause },
    );
  }
}
