import type { PinnedKeys } from '#protocol/snapshot/trust';
import { logKeysOf, withLogKeys } from '#protocol/state/log-keys';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Pool } from '#sql/db/transaction';
import { logStateKeys } from '#sql/lifecycle/log-keys';
import { latestCheckpointBy } from '#sql/log/log';

/**
 * Returns the pinned keys, and each log key whose activation is covered by a checkpoint of an
 * accepted key. Later, the walk of the log compares these checkpoints and key entries with the
 * tree.
 */
export async function acceptedLogKeys(sql: Pool, pinned: PinnedKeys): Promise<PinnedKeys> {
  const [{ name }] = pinned;
  const keys = [...(await logStateKeys(sql, name)).values()];
  // The retirement of a pinned key applies even if no accepted checkpoint covers the retirement.
  const isPinned = new Set(pinned.map(({ publicKey }) => String(publicKey)));
  const named = logKeysOf(nativeSha256, name, keys);
  let accepted = withLogKeys(
    pinned,
    named.filter(({ publicKey }) => isPinned.has(String(publicKey))),
  );
  for (;;) {
    const size = await latestCheckpointBy(sql, accepted);
    const covered = keys.filter(({ index }) => index < size);
    const more = withLogKeys(accepted, logKeysOf(nativeSha256, name, covered));
    if (more.length === accepted.length) return more;
    accepted = more;
  }
}
