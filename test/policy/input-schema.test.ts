import files from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type * as module from '#policy/input-schema';
import { inputSchema, unknownAttributes } from '#policy/input-schema';

it('inputSchema > reads the schema file again after a failed read', async () => {
  // Other test files may have read the file into the shared module.
  const fresh = '../../policy/input-schema.ts?fresh';
  const { inputSchema } = (await import(fresh)) as typeof module;
  const read = vi.spyOn(files, 'readFile').mockRejectedValueOnce(new Error('EMFILE'));
  syncBuiltinESMExports();
  onTestFinished(() => {
    read.mockRestore();
    syncBuiltinESMExports();
  });
  await expect(inputSchema()).rejects.toThrow('EMFILE');
  expect(await inputSchema()).toContain('namespace Svc');
});

describe('unknownAttributes', () => {
  const found = async (condition: string): Promise<string[]> => {
    const rule = `forbid (principal, action, resource) when { ${condition} };`;
    return unknownAttributes({ rule }, await inputSchema()).map(({ message }) => message);
  };
  const either = (record: string): string =>
    `(if context.lane == "x" then ${record} else ${record})`;

  it.each([
    [`${either('context')} has arguments || context.lane == "y"`, 'arguments'],
    [`context has agent && {x: context.agent}.x has tools`, 'tools'],
    [`[${either('context')} has fixture.size].contains(true)`, 'fixture.size'],
    ['action has origin || context.lane == "y"', 'origin'],
    ['principal.hasTag("tier") || context.lane == "y"', 'a tag'],
  ])('reports a condition that can never be true: %s', async (condition, unknown) => {
    expect(await found(condition)).toEqual([
      expect.stringContaining(`no input contains ${unknown}`),
    ]);
  });

  it.each([
    `${either('context')} has tool`,
    `context has agent && ${either('context.agent')} has framework`,
    'false && {x: context}.x has tool',
  ])('accepts a condition that can be met or is never evaluated: %s', async (condition) => {
    expect(await found(condition)).toEqual([]);
  });
});
