import { describe, expect, it } from 'vitest';
import { mergeFrom, SEALED_ENTRIES } from '#publisher/store/compaction';

/** Adds parts one after the other and merges as told; how much was written on the way. */
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

describe('merging index parts', () => {
  it('keeps few parts and writes each row a few times when proofs trickle in', () => {
    const additions = Array.from({ length: 100_000 }, (_, i) => 1 + (i % 3));
    const { parts, most, written } = grow(additions);
    expect(sum(parts)).toBe(sum(additions));
    expect(most).toBeLessThan(25);
    expect(written / sum(additions)).toBeLessThan(12);
  });

  it('keeps few parts and hardly rewrites when thousands come at a time', () => {
    const additions = Array.from({ length: 200 }, () => 10_000);
    const { most, written } = grow(additions);
    expect(most).toBeLessThan(12);
    expect(written / sum(additions)).toBeLessThan(4);
  });

  it('leaves no small parts behind large ones', () => {
    const additions = Array.from({ length: 500 }, (_, i) => (i % 2 === 0 ? 3 : 10_000));
    const { most, written } = grow(additions);
    expect(most).toBeLessThan(25);
    expect(written / sum(additions)).toBeLessThan(5);
  });

  it('never touches a part that is large enough', () => {
    const sealed = [SEALED_ENTRIES, SEALED_ENTRIES * 2];
    expect(mergeFrom([...sealed, 5])).toBe(3);
    expect(mergeFrom([...sealed, 5, 5, 5, 5])).toBe(2);
    expect(mergeFrom([10, ...sealed])).toBe(3);
  });

  it('only ever merges with neighbours up to the newest', () => {
    expect(mergeFrom([5000, 300, 300, 300, 300])).toBe(1);
    expect(mergeFrom([300, 300, 300])).toBe(3);
    expect(mergeFrom([])).toBe(0);
  });
});
