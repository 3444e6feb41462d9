import { expect, it, vi } from 'vitest';
import { arraySplitter, lineSplitter } from '#api/engine/batches/parse-batch';

it('a JSON Lines batch > skips thousands of blank lines with two searches', () => {
  const body = Buffer.from(`${'\n'.repeat(10_000)} \r\n{"a":1}\n${'\n'.repeat(10_000)}`);
  const search = vi.spyOn(body, 'indexOf');
  const items = lineSplitter(1_000).push(body);
  expect(items.map((item) => 'bytes' in item && item.bytes.toString())).toEqual(['{"a":1}']);
  expect(search).toHaveBeenCalledTimes(2);
});

it.each([
  ['lines', lineSplitter, '', '\n'],
  ['an array', arraySplitter, '[', ']'],
])('a batch as %s > buffers no blank chunks before an item', (_, openSplitter, begin, end) => {
  const chunks = [begin, ...' \n'.repeat(1_000), '{"a":1}', end];
  const joined = vi.spyOn(Buffer, 'concat');
  const splitter = openSplitter(1_000);
  const items = chunks.flatMap((chunk) => splitter.push(Buffer.from(chunk)));
  expect(items.map((item) => 'bytes' in item && item.bytes.toString())).toEqual(['{"a":1}']);
  // A parser that buffered the blank chunks would call Buffer.concat to join them to the item.
  expect(joined).not.toHaveBeenCalled();
  joined.mockRestore();
});
