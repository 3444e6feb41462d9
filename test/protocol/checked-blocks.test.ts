import { describe, expect, it } from 'vitest';
import { CheckedBlocks } from '#protocol/snapshot/checked-blocks';
import { BLOCK, ROW_BYTES } from '#protocol/snapshot/index-part';

describe('checked blocks of rows', () => {
  const blockOf = (byte: number): Uint8Array => new Uint8Array(BLOCK * ROW_BYTES).fill(byte);

  it('return the rows that were stored, and the later of two rows with one key', () => {
    const blocks = new CheckedBlocks(1_000_000);
    expect(blocks.find(0)).toBe(-1);
    const at = blocks.put(0, blockOf(1));
    blocks.put(1, blockOf(2));
    expect(blocks.find(0)).toBe(at);
    expect(blocks.memory.subarray(at, at + BLOCK * ROW_BYTES)).toEqual(blockOf(1));
    // Some later block replaces the first block, which then is no longer stored.
    const other = Array.from({ length: 62_500 }, (_, i) => i).find(
      (number) => number > 0 && blocks.put(number, blockOf(3)) === at,
    )!;
    expect(blocks.find(other)).toBe(at);
    expect(blocks.find(0)).toBe(-1);
    expect(blocks.memory[at]).toBe(3);
  });

  it('use at most 6 MiB of memory for an index segment of any size', () => {
    const blocks = new CheckedBlocks(100_000_000);
    blocks.put(5_000_000, blockOf(1));
    expect(blocks.memory.length).toBeLessThanOrEqual(6 * 2 ** 20);
    expect(new CheckedBlocks(17).memory.length).toBe(0);
  });
});
