import { constants } from 'node:fs';
import { access, chmod, mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { OperatorError } from './operator-error.js';

/** Makes a folder where there is none, as the umask permits; the message says which setting to change. */
export async function makeFolder(
  variable: string,
  path: string,
  make: (path: string) => Promise<unknown> = (folder) => mkdir(folder, { recursive: true }),
): Promise<void> {
  try {
    await make(path);
    await access(path, constants.W_OK | constants.X_OK);
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new OperatorError(
      `${path} cannot be written (${code}): set ${variable} to a folder that this user may write.`,
      { cause },
    );
  }
}

/** Makes a folder, and those above it, where there is none: of mode 0755 whatever the umask. */
export async function makePublicFolder(path: string): Promise<void> {
  const topmost = await mkdir(path, { recursive: true });
  if (topmost === undefined) return;
  for (let made = resolve(path); ; made = dirname(made)) {
    await chmod(made, 0o755);
    if (made === resolve(topmost)) return;
  }
}
