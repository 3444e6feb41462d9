import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

export interface FileCount {
  files: number;
  bytes: number;
  /** Entries of the directory that has the most. */
  mostInOneDirectory: number;
}

/** What is below a directory. */
export async function countFiles(directory: string): Promise<FileCount> {
  const total: FileCount = { files: 0, bytes: 0, mostInOneDirectory: 0 };
  const entries = await readdir(directory, { withFileTypes: true });
  total.mostInOneDirectory = entries.length;
  for (const entry of entries) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) {
      const below = await countFiles(path);
      total.files += below.files;
      total.bytes += below.bytes;
      total.mostInOneDirectory = Math.max(total.mostInOneDirectory, below.mostInOneDirectory);
    } else {
      total.files += 1;
      total.bytes += (await stat(path)).size;
    }
  }
  return total;
}
