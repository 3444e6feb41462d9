import { describe, expect, it } from 'vitest';
import { mergeFrom, SEALED_ENTRIES } from '#publisher/store/compaction';

/** Adds segments one after the other and merges them; counts the rows written. */
function grow(additions: readonly number[]): { parts: number[]; most: number; written: number } {
  let parts: number[] = [];
  let most = 0;
  let written = 0;
  for (const added of additions) {
    parts.push(added);
    const from = mergeFrom(parts);
    const merged = parts.slice(from).reduce((sum, size) => sum + size, 0);
    if (from < parts.length) parts = [...parts.slice(0, from), merged];
    written += merged === 0 ? added : merged;
    most = Math.max(most, parts.length);
  }
  return { parts, most, written };
}

const sum = (sizes: readonly number[]): number => sizes.reduce((total, size) => total + size, 0);

describe('index segment compaction', () => {
  it('keeps few segments and rewrites each row rarely when proofs arrive one at a time', () => {
    const additions = Array.from({ length: 100_000 }, (_, i) => 1 + (i % 3));
    const { parts, most, written } = grow(additions);
    expect(sum(parts)).toBe(sum(additions));
    expect(most).toBeLessThan(25);
    expect(written / sum(additions)).toBeLessThan(12);
  });

  it('never merges a segment that has reached the maximum size', () => {
    const sealed = [SEALED_ENTRIES, SEALED_ENTRIES * 2];
    expect(mergeFrom([...sealed, 5])).toBe(3);
    expect(mergeFrom([...sealed, 5, 5, 5, 5])).toBe(2);
    expect(mergeFrom([10, ...sealed])).toBe(3);
  });
});
