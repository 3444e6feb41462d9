import { readFile, stat } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { UsageError } from './usage-error.js';

/** What messages call it. */
export const nameOf = (name: string): string => (name === '-' ? 'standard input' : name);

/** The bytes of a file, or of standard input for `-`. */
export async function readInput(name: string): Promise<Uint8Array> {
  try {
    return name === '-' ? await buffer(process.stdin) : await readFile(name);
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new UsageError(`${nameOf(name)} cannot be read: ${code}`, { cause });
  }
}

export async function isFile(name: string): Promise<boolean> {
  if (name === '-') return true;
  try {
    return !(await stat(name)).isDirectory();
  } catch {
    return false;
  }
}
