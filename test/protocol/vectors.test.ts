import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { workedVectors } from '../fixtures/worked-vectors.js';
import { hasPython, runPython } from '../fixtures/python.js';

const folder = fileURLToPath(new URL('../../protocol/vectors/', import.meta.url));

describe('worked vectors', () => {
  // The bytes of 1.0 are final: a difference here breaks the format.
  // To write a new vector, run `npx vitest run test/protocol/vectors.test.ts`.
  it.each(Object.entries(workedVectors))('equal %s.json', async (name, vector) => {
    await expect(`${JSON.stringify(vector, null, 2)}\n`).toMatchFileSnapshot(
      `${folder}${name}.json`,
    );
  });

  it('are all documented', () => {
    const readme = readFileSync(`${folder}README.md`, 'utf8');
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    expect(files.length).toBeGreaterThan(20);
    for (const file of files) {
      if (file !== 'README.md') expect(readme).toContain(`\`${file}\``);
    }
  });
});

it.runIf(hasPython)(
  'vectors of logs and maps > equal the output of the Python implementation',
  async () => {
    const computed = await runPython('next-vectors.py', []);
    expect(computed).toBe(readFileSync(join(packageRoot, 'protocol/vectors/next.json'), 'utf8'));
  },
);
