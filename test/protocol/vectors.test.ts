import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { workedVectors } from '../fixtures/worked-vectors.js';

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
