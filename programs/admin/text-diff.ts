/** Above so many pairs of lines the texts are shown whole: nobody reads such a difference. */
const MOST_PAIRS = 4_000_000;

/**
 * The difference of two texts line by line, `-` before what only the first has, `+` before what
 * only the second has: the longest common subsequence stays.
 */
export function textDiff(before: string, after: string): string {
  const [a, b] = [before.split('\n'), after.split('\n')];
  if (a.length * b.length > MOST_PAIRS) {
    return [...a.map((line) => `- ${line}`), ...b.map((line) => `+ ${line}`)].join('\n');
  }
  const common = commonLengths(a, b);
  const lines: string[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push(`  ${a[i] ?? ''}`);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && at(common, i + 1, j) >= at(common, i, j + 1))) {
      lines.push(`- ${a[i] ?? ''}`);
      i += 1;
    } else {
      lines.push(`+ ${b[j] ?? ''}`);
      j += 1;
    }
  }
  return lines.join('\n');
}

const at = (table: Uint32Array[], i: number, j: number): number => table[i]?.[j] ?? 0;

/** How many lines the ends of both texts have in common, from every pair of lines on. */
function commonLengths(a: string[], b: string[]): Uint32Array[] {
  const table = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    const row = table[i];
    if (row === undefined) continue;
    for (let j = b.length - 1; j >= 0; j -= 1) {
      row[j] =
        a[i] === b[j]
          ? at(table, i + 1, j + 1) + 1
          : Math.max(at(table, i + 1, j), at(table, i, j + 1));
    }
  }
  return table;
}
