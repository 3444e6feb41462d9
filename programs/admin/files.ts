import { readFile } from 'node:fs/promises';
import { OperatorError } from '#runtime/process/operator-error';

const REASONS: Record<string, string> = {
  ENOENT: 'no such file or directory',
  ENOTDIR: 'not a directory',
  EISDIR: 'is a directory, not a file',
  EACCES: 'permission denied for this user',
};

/** Reads an operator's file; a wrong path gives a readable error. */
export async function reading<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === undefined ? undefined : REASONS[code];
    if (reason === undefined) throw error;
    throw new OperatorError(`${path} cannot be read: ${reason}`, { cause: error });
  }
}

export function readOperatorsFile(path: string): Promise<Buffer> {
  return reading(path, () => readFile(path));
}
