import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { hasPython, runPython } from '../fixtures/python.js';

it.runIf(hasPython)(
  'vectors of formats 1.1 > equal the output of the Python implementation of spec/next.md',
  async () => {
    const computed = await runPython('next-vectors.py', []);
    expect(computed).toBe(readFileSync(join(packageRoot, 'protocol/vectors/next.json'), 'utf8'));
  },
);
