import { lstat, mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Root's own directory that every account can pass through, for what Postgres must reach when the
 * checkout or DATA_DIR lies below a private home. Some of these parents are writable by anybody, so a
 * directory that somebody else could have prepared there is not used.
 */
export async function sharedPlace(): Promise<string | null> {
  for (const parent of ['/var/lib', '/var/tmp', tmpdir()]) {
    const place = join(parent, 'svc-postgres');
    try {
      await mkdir(place, { mode: 0o755 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') continue;
    }
    const found = await lstat(place);
    if (found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o022) === 0) {
      return place;
    }
  }
  return null;
}
