import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { lock } from 'proper-lockfile';
import { utf8 } from '#protocol/bytes';
import { type Checkpoint, formatCheckpoint, parseCheckpoint } from '#protocol/checkpoint';
import { hashHex } from '#protocol/hash';
import { emptyRoot } from '#protocol/merkle';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  createPrivateFile,
  futureLock,
  makeFolder,
  writePrivateFile,
} from '#runtime/process/files';
import { OperatorError } from '#runtime/process/operator-error';

/** A lock without a heartbeat for this long belongs to a killed process. */
const STALE_MS = 5_000;

export type CosignedHeads = Awaited<ReturnType<typeof openCosignedHeads>>;

const fileOf = (directory: string, origin: string): string =>
  join(directory, `${hashHex(nativeSha256, utf8(origin))}.head`);

/** Stores the head of the empty tree for a log that this witness has never cosigned. */
export async function addLog(directory: string, origin: string): Promise<void> {
  await makeFolder('WITNESS_DIR', directory);
  const file = fileOf(directory, origin);
  try {
    createPrivateFile(file, formatCheckpoint({ origin, size: 0, root: emptyRoot(nativeSha256) }));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause;
    throw new OperatorError(`${file} is a tree head of ${origin}: the log is not new`, { cause });
  }
}

/**
 * Opens the last head that this witness cosigned for each log, in one file for each origin. Locks the
 * directory, because two processes could cosign two forks.
 *
 * @param onLost called when another process took the lock while this process was stalled
 */
export async function openCosignedHeads(directory: string, onLost: (error: Error) => void) {
  await makeFolder('WITNESS_DIR', directory);
  const lockfilePath = join(directory, '.lock');
  const unlock = await lock(directory, {
    lockfilePath,
    stale: STALE_MS,
    update: STALE_MS / 5,
    // After a kill, the lock is free only once it is stale.
    retries: { retries: 12, minTimeout: 500, maxTimeout: 500 },
    onCompromised: onLost,
  }).catch(async (cause: unknown) => {
    if ((cause as { code?: unknown }).code !== 'ELOCKED') throw cause;
    const message = `Another witness uses ${directory}: stop that witness, or set WITNESS_DIR.`;
    throw new OperatorError((await futureLock(lockfilePath)) ?? message, { cause });
  });
  /** The size of the last head of each log that this process read or stored. */
  const known = new Map<string, number>();
  return {
    unlock,
    /**
     * The head that was cosigned last, or null. Reads the file each time, because another process may
     * have replaced it.
     *
     * @throws Error also when the directory has an older head than before, or none
     */
    latest: (origin: string): Checkpoint | null => {
      const file = fileOf(directory, origin);
      const head = readHead(file, origin);
      const size = head?.size ?? 0;
      if (size < (known.get(origin) ?? 0))
        throw new Error(`${file} is lost or was restored: the last cosigned head is newer`);
      known.set(origin, size);
      return head;
    },
    /** Replaces the head of a log; durable when this returns. */
    store: (head: Checkpoint): void => {
      writePrivateFile(fileOf(directory, head.origin), formatCheckpoint(head));
      known.set(head.origin, head.size);
    },
  };
}

function readHead(file: string, origin: string): Checkpoint | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  const head = parseCheckpoint(text);
  if (head.origin !== origin) throw new Error(`${file} belongs to another log: ${head.origin}`);
  return head;
}
