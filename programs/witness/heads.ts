import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { lock } from 'proper-lockfile';
import { utf8 } from '#protocol/bytes';
import { type Checkpoint, formatCheckpoint, parseCheckpoint } from '#protocol/checkpoint';
import { hashHex } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import { makeFolder, writePrivateFile } from '#runtime/process/files';
import { OperatorError } from '#runtime/process/operator-error';

/** A lock without a heartbeat for this long belongs to a killed process. */
const STALE_MS = 5_000;

/** The last head that this witness cosigned for each log, in one file for each origin. */
export class CosignedHeads {
  private constructor(private readonly directory: string) {}

  /**
   * Locks the directory, because two processes could cosign two forks.
   *
   * @param onLost called when another process took the lock while this process was stalled
   */
  static async open(
    directory: string,
    onLost: (error: Error) => void,
  ): Promise<{ heads: CosignedHeads; unlock: () => Promise<void> }> {
    await makeFolder('WITNESS_DIR', directory);
    try {
      const unlock = await lock(directory, {
        lockfilePath: join(directory, '.lock'),
        stale: STALE_MS,
        update: STALE_MS / 5,
        // After a kill, the lock is free only once it is stale.
        retries: { retries: 12, minTimeout: 500, maxTimeout: 500 },
        onCompromised: onLost,
      });
      return { heads: new CosignedHeads(directory), unlock };
    } catch (cause) {
      if ((cause as { code?: unknown }).code !== 'ELOCKED') throw cause;
      throw new OperatorError(
        `Another witness uses ${directory}: stop that witness, or set WITNESS_DIR.`,
        {
          cause,
        },
      );
    }
  }

  /**
   * The head that was cosigned last, or null. Reads the file each time, because another process may
   * have replaced it.
   */
  latest(origin: string): Checkpoint | null {
    const file = this.fileOf(origin);
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

  /** Replaces the head of a log; durable when this returns. */
  store(head: Checkpoint): void {
    writePrivateFile(this.fileOf(head.origin), formatCheckpoint(head));
  }

  private fileOf(origin: string): string {
    return join(this.directory, `${hashHex(nativeSha256, utf8(origin))}.head`);
  }
}
