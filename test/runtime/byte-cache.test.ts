import { expect, it } from 'vitest';
import { ByteCache } from '#runtime/process/byte-cache';

it('ByteCache > keeps the most recently used values within its size limit', () => {
  const cache = new ByteCache<string>(100);
  const put = (name: string, bytes = 30): void => cache.put(name, name, bytes);
  const kept = (): string[] => ['a', 'b', 'c', 'd'].filter((name) => cache.get(name) !== undefined);
  for (const name of ['a', 'a', 'b', 'c']) put(name);
  cache.delete('nothing');
  cache.get('a');
  put('d');
  expect(kept()).toEqual(['a', 'c', 'd']);
  cache.delete('c');
  put('b');
  expect(kept()).toEqual(['a', 'b', 'd']);
  const dropped = cache.find('a');
  put('c', 1_000);
  expect(kept()).toEqual(['c']);
  expect(dropped?.value).toBeUndefined();
});
