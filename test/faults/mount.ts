import { execFile } from 'node:child_process';
import { open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A small file system that can be filled completely. */
export interface SmallDisk {
  path: string;
  /** Fills the file system to the last byte. */
  fill(): Promise<void>;
  empty(): Promise<void>;
  setReadOnly(isReadOnly: boolean): Promise<void>;
  close(): Promise<void>;
}

/** @returns the disk, or the reason for its absence: mounting needs root, and containers forbid it */
export async function mountSmallDisk(path: string, megabytes: number): Promise<SmallDisk | string> {
  if (process.getuid?.() !== 0) return 'mounting needs root';
  try {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${String(megabytes)}m,mode=755`, 'svc', path]);
  } catch (error) {
    return `nothing can be mounted here: ${(error as Error).message.split('\n').at(-1) ?? ''}`;
  }
  const ballast = join(path, 'ballast');
  return {
    path,
    fill: async () => {
      // Sparse files use no space, so bytes are written until ENOSPC.
      const file = await open(ballast, 'w');
      try {
        for (const bytes of [MIB, 4096].map((size) => Buffer.alloc(size, 1))) {
          await writeUntilFull(file, bytes);
        }
      } finally {
        await file.close();
      }
    },
    empty: () => rm(ballast, { force: true }),
    setReadOnly: async (isReadOnly) => {
      await run('mount', ['-o', `remount,${isReadOnly ? 'ro' : 'rw'}`, path]);
    },
    close: async () => {
      await run('umount', ['--lazy', path]).catch(() => undefined);
    },
  };
}

const MIB = 2 ** 20;

async function writeUntilFull(file: FileHandle, bytes: Buffer): Promise<void> {
  for (;;) {
    try {
      const { bytesWritten } = await file.write(bytes);
      if (bytesWritten < bytes.length) return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return;
      throw error;
    }
  }
}
