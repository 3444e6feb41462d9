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
 * @param onLost called when the lock is lost: its disk failed, or another process took it while this process was stalled
 */
export async function openCosignedHeads(directory: string, onLost: (error: Error) => void) {
  await makeFolder('WITNESS_DIR', directory);
  const lockfilePath = join(directory, '.lock');
  let isLost = false;
  const unlock = await lock(directory, {
    lockfilePath,
    stale: STALE_MS,
    update: STALE_MS / 5,
    // After a kill, the lock is free only once it is stale.
    retries: { retries: 12, minTimeout: 500, maxTimeout: 500 },
    onCompromised: (cause) => {
      isLost = true;
      const message = `The lock ${lockfilePath} is lost (${cause.message}): restore access to the directory, and run only one witness with it.`;
      onLost(new OperatorError(message, { cause }));
    },
  }).catch(async (cause: unknown) => {
    if ((cause as { code?: unknown }).code !== 'ELOCKED') throw cause;
    const message = `Another witness uses ${directory}: stop that witness, or set WITNESS_DIR.`;
    throw new OperatorError((await futureLock(lockfilePath)) ?? message, { cause });
  });
  /** The last head of each log that this process read or stored. */
  const known = new Map<string, Checkpoint>();
  return {
    unlock: async () => {
      if (!isLost) await unlock();
    },
    /**
     * The head that was cosigned last, or null. Reads the file each time, because another process may
     * have replaced it.
     *
     * @throws Error also when the directory has an older head than before, or none
     */
    latest: (origin: string): Checkpoint | null => {
      if (isLost) throw new Error(`${lockfilePath} is lost`);
      const file = fileOf(directory, origin);
      const head = readHead(file, origin);
      if ((head?.size ?? 0) < (known.get(origin)?.size ?? 0))
        throw new Error(`${file} is lost or was restored: the last cosigned head is newer`);
      if (head !== null) known.set(origin, head);
      return head;
    },
    /** Replaces the head that `latest` returned last; durable when this returns. */
    store: (head: Checkpoint): void => {
      const file = fileOf(directory, head.origin);
      writePrivateFile(file, formatCheckpoint(head), () => {
        const [now, last] = [readHead(file, head.origin), known.get(head.origin)];
        if (now !== null && last !== undefined && formatCheckpoint(now) === formatCheckpoint(last))
          return;
        // During a sync that takes longer than STALE_MS, another process can take the lock and cosign a fork.
        throw new Error(
          `${file} changed while the next head was written: is another witness running?`,
        );
      });
      known.set(head.origin, head);
    },
  };
}

function readHead(file: string, origin: string): Checkpoint | null {
  try {
    const head = parseCheckpoint(readFileSync(file, 'utf8'));
    if (head.origin === origin) return head;
    throw new Error(`the file belongs to another log: ${head.origin}`);
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    throw new Error(`${file}: ${message}`, { cause });
  }
}
