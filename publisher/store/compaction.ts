/**
 * Which index parts become one. Parts grow by factors of four, so that there are O(log n) of them,
 * each row is written O(log n) times, and a part that is large enough is left alone for good: above
 * that size merging costs more than one more part to search.
 */
const FANOUT = 4;
const SMALLEST = 16;
export const SEALED_ENTRIES = 262_144;

/**
 * Given the sizes of the parts, oldest first, the index from which on they should be merged into
 * one; their number when nothing should. Only ever a run up to the newest: rows shadow older ones,
 * so parts may only be merged with their neighbours.
 */
export function mergeFrom(entries: readonly number[]): number {
  let sizes = [...entries];
  let from = sizes.length;
  for (;;) {
    const start = nextMerge(sizes);
    if (start === sizes.length) return from;
    from = start;
    const merged = sizes.slice(start).reduce((sum, size) => sum + size, 0);
    sizes = [...sizes.slice(0, start), merged];
  }
}

function nextMerge(sizes: readonly number[]): number {
  const highest = sizeClass(SEALED_ENTRIES);
  for (let limit = 0; limit <= highest; limit++) {
    let start = sizes.length;
    while (
      start > 0 &&
      sizes[start - 1]! < SEALED_ENTRIES &&
      sizeClass(sizes[start - 1]!) <= limit
    ) {
      start--;
    }
    const run = sizes.slice(start).map(sizeClass);
    const full = run.filter((size) => size === limit).length >= FANOUT;
    // A small part before a larger one would be stuck there: it is taken along.
    const stuck = run.some((size, i) => i > 0 && run[i - 1]! < size);
    if (full || stuck) return start;
  }
  return sizes.length;
}

function sizeClass(entries: number): number {
  let size = 0;
  for (let bound = SMALLEST; entries >= bound; bound *= FANOUT) size++;
  return size;
}
