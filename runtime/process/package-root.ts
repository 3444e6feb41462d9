import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';

function findRoot(from: string): string {
  if (existsSync(join(from, 'package.json'))) return from;
  const parent = dirname(from);
  if (parent === from)
    throw new Error(
      'no package.json in any parent directory: the program was moved out of its package',
    );
  return findRoot(parent);
}

/** The directory of package.json, whether run from source or from dist. */
export const packageRoot = findRoot(import.meta.dirname);
