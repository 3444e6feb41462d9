import { rename, rm, writeFile } from 'node:fs/promises';
import { UsageError } from './usage-error.js';

/** Writes all of it or nothing: half a proof would be taken for a broken one. */
export async function writeOutput(name: string, bytes: Uint8Array): Promise<void> {
  const unfinished = `${name}.${String(process.pid)}.part`;
  try {
    await writeFile(unfinished, bytes, { flag: 'wx' });
    await rename(unfinished, name);
  } catch (cause) {
    await rm(unfinished, { force: true });
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new UsageError(`${name} cannot be written: ${code}`, { cause });
  }
}
