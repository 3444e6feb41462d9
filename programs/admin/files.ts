import { readFile } from 'node:fs/promises';
import { OperatorError } from '#runtime/process/operator-error';

const SAY: Record<string, string> = {
  ENOENT: 'there is no such file or folder',
  ENOTDIR: 'it is not a folder',
  EISDIR: 'it is a folder, not a file',
  EACCES: 'this user may not read it',
};

/** Reads an operator's file; a wrong path gives a readable error. */
export async function reading<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const say = code === undefined ? undefined : SAY[code];
    if (say === undefined) throw error;
    throw new OperatorError(`${path} cannot be read: ${say}`, { cause: error });
  }
}

export function readOperatorsFile(path: string): Promise<Buffer> {
  return reading(path, () => readFile(path));
}
