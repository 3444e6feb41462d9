import { constants } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { OperatorError } from './operator-error.js';

/** Makes a folder that others may look into, where there is none; the message says which setting to change. */
export async function makeFolder(variable: string, path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o755 });
    await access(path, constants.W_OK | constants.X_OK);
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new OperatorError(
      `${path} cannot be written (${code}): set ${variable} to a folder that this user may write.`,
      { cause },
    );
  }
}
