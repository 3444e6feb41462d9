/**
 * Compaction of index segments. Segments grow by factors of four, so there are O(log n) of them and
 * each row is written O(log n) times. Segments above a limit are never merged: the merge would cost
 * more than searching one more segment.
 */
const FANOUT = 4;
const SMALLEST = 16;
export const SEALED_ENTRIES = 262_144;

/**
 * Given segment sizes, oldest first, returns the index from which on segments should be merged; the
 * number of segments if none should. A merge always reaches the newest segment: rows shadow older
 * ones, so only neighbours may be merged.
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
    // A small segment before a larger one would never be merged by size class, so it is merged now.
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
