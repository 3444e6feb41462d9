import { ProtocolError } from '#protocol/errors';
import { openNote, parseVkey } from '#protocol/note';
import { nativeSha256, nativeVerify } from '#runtime/crypto';
import type { EngineContext } from '../context.js';

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
