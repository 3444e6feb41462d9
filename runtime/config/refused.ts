/**
 * A name counts as misspelt if it differs from a setting by at most one edit per this many characters, so
 * `ENGINE_HOST` does not count as a misspelt `ENGINE_PORT`.
 */
const CHARACTERS_PER_EDIT = 8;

/** Kubernetes sets variables like `ENGINE_PORT` for every service. */
export const OF_KUBERNETES = /^(?:tcp|udp|sctp):\/\//;

/** A sentence for each variable whose name is almost that of a setting. */
export function refusedVariables(
  env: Readonly<Record<string, string | undefined>>,
  settings: ReadonlySet<string>,
): string[] {
  return Object.entries(env).flatMap(([name, value = '']) => {
    if (settings.has(name) || value.trim() === '' || OF_KUBERNETES.test(value)) return [];
    const meant = [...settings].find((setting) => {
      const most = Math.floor(setting.length / CHARACTERS_PER_EDIT);
      return Math.abs(name.length - setting.length) <= most && edits(name, setting) <= most;
    });
    return meant === undefined ? [] : [`${name} is not a setting: did you mean ${meant}?`];
  });
}

/** The number of insertions, deletions, replacements and swaps of adjacent characters that turn `a` into `b`. */
function edits(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      next[j] = Math.min(replaced, row[j]! + 1, next[j - 1]! + 1, isSwap ? before[j - 2]! + 1 : 99);
    }
    [before, row] = [row, next];
  }
  return row[b.length]!;
}
