import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';

const hasPython = (): boolean => {
  try {
    execFileSync('python3', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
};

// In CI a missing Python fails the test.
it.runIf(process.env['CI'] !== undefined || hasPython())(
  'vectors of formats 1.1 > equal the output of the Python implementation of spec/next.md',
  () => {
    const script = join(packageRoot, 'test/interop/next-vectors.py');
    const computed = execFileSync('python3', [script], { encoding: 'utf8', maxBuffer: 2 ** 20 });
    expect(computed).toBe(readFileSync(join(packageRoot, 'protocol/vectors/next.json'), 'utf8'));
  },
);
