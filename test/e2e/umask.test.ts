import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

let stack: RunningStack | undefined;
const before = process.umask();
beforeAll(async () => {
  process.umask(0o077);
  stack = await startStack();
}, 90_000);
afterAll(async () => {
  process.umask(before);
  await stack?.destroy();
});

it('a stack under umask 077 > writes a world-readable snapshot and private keys', async () => {
  const { dataDir } = stack!;
  const modeOf = (path: string): string => {
    const stats = statSync(join(dataDir, path));
    return `${stats.isDirectory() ? 'folder' : 'file'} ${(stats.mode & 0o777).toString(8)}`;
  };
  const published = (): string[] =>
    readdirSync(join(dataDir, 'public'), { recursive: true, encoding: 'utf8' });
  await eventually(
    () => Promise.resolve(published().includes('lookup/manifest') || null),
    20_000,
    'a manifest',
  );
  const modes = ['', ...published()]
    .filter((path) => !path.startsWith('.'))
    .map((path) => modeOf(join('public', path)));
  expect(new Set(modes)).toEqual(new Set(['folder 755', 'file 644']));
  const keys = readdirSync(dataDir).filter((name) => name.endsWith('.pem'));
  expect(keys.map(modeOf)).toEqual(['file 600', 'file 600', 'file 600']);
});
