import type * as Files from 'node:fs/promises';
import { readFile } from 'node:fs/promises';
import { expect, it, vi } from 'vitest';
import { inputSchema } from '#policy/input-schema';

vi.mock('node:fs/promises', async (original) => {
  const fs = await original<typeof Files>();
  return { ...fs, readFile: vi.fn(fs.readFile) };
});

it('inputSchema > reads the schema again after a read that failed', async () => {
  vi.mocked(readFile).mockRejectedValueOnce(new Error('EMFILE'));
  await expect(inputSchema()).rejects.toThrow('EMFILE');
  expect(await inputSchema()).toContain('namespace Svc');
});
