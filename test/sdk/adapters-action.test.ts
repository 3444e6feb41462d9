import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { actionOf } from '#sdk/adapters/index';
import { plainHash } from '#sdk/adapters/stream';
import { canonicalHash } from '#sdk/index';
import { packageRoot } from '#runtime/process/files';

/** The tests of the Python package expect the same results. */
const vectors = JSON.parse(
  readFileSync(join(packageRoot, 'test/vectors/tool-calls.json'), 'utf8'),
) as {
  actions: { tool: string; action: string | null }[];
  arguments: { arguments: string; hash: string }[];
};

it.each(vectors.actions)('actionOf > converts the tool name $tool', ({ tool, action }) => {
  const convert = () => actionOf(tool);
  if (action !== null) expect(convert()).toBe(action);
  else expect(convert).toThrow(expect.objectContaining({ code: 'invalid_input' }));
});

it('canonicalHash > reports a value that cannot be read', () => {
  const value = {
    get seats(): number {
      throw new Error('mine');
    },
  };
  expect(() => canonicalHash(value)).toThrow('/: has no JSON form');
});

it.each(vectors.arguments)(
  'plainHash > hashes the arguments $arguments',
  ({ arguments: text, hash }) => {
    expect(plainHash(JSON.parse(text))).toBe(hash);
  },
);
