import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { actionOf } from '#sdk/adapters/index';
import { plainHash } from '#sdk/adapters/plain-json';
import { packageRoot } from '#runtime/process/files';

/** The Python package has the same results. */
const vectors = JSON.parse(
  readFileSync(join(packageRoot, 'test/vectors/tool-calls.json'), 'utf8'),
) as {
  actions: { tool: string; action: string | null }[];
  arguments: { arguments: string; hash: string }[];
};

describe('actionOf', () => {
  it.each(vectors.actions)('converts the tool name $tool', ({ tool, action }) => {
    const convert = () => actionOf(tool);
    if (action !== null) expect([convert(), actionOf(action)]).toEqual([action, action]);
    else expect(convert).toThrow(expect.objectContaining({ code: 'invalid_input' }));
  });
});

it.each(vectors.arguments)(
  'plainHash > hashes the arguments $arguments',
  ({ arguments: text, hash }) => {
    expect(plainHash(JSON.parse(text))).toBe(hash);
  },
);
