import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { hasPython, runPython } from '../fixtures/python.js';

it.runIf(hasPython)(
  'vectors of logs and maps > equal the output of the Python implementation',
  async () => {
    const computed = await runPython('next-vectors.py', []);
    expect(computed).toBe(readFileSync(join(packageRoot, 'protocol/vectors/next.json'), 'utf8'));
  },
);
