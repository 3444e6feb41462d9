import { expect, it, vi } from 'vitest';
import { lineSplitter } from '#api/engine/batches/parse-batch';

it('a batch of lines > skips blank lines without a search for each of them', () => {
  const body = Buffer.from(`${'\n'.repeat(10_000)} \r\n{"a":1}\n${'\n'.repeat(10_000)}`);
  const search = vi.spyOn(body, 'indexOf');
  const items = lineSplitter(1_000).push(body);
  expect(items.map((item) => 'bytes' in item && item.bytes.toString())).toEqual(['{"a":1}']);
  expect(search).toHaveBeenCalledTimes(2);
});
