import { policyFile } from '#policy/check';
import { SCHEMA_FILE } from '#policy/policy-set';
import type { StoredPolicySet } from '#sql/admissions/policies';
import type { Outcome } from './command.js';
import { digestOf } from './policy-source.js';

/** The changes from the first set to the second. */
export function policyDiff(before: StoredPolicySet, after: StoredPolicySet): Outcome {
  const [a, b] = [textsOf(before), textsOf(after)];
  const files = [...new Set([...a.keys(), ...b.keys()])].sort();
  const document = {
    before: digestOf(before),
    after: digestOf(after),
    added: files.filter((file) => !a.has(file)),
    removed: files.filter((file) => !b.has(file)),
    changed: files
      .filter((file) => a.has(file) && b.has(file) && a.get(file) !== b.get(file))
      .map((file) => ({ file, diff: textDiff(a.get(file) ?? '', b.get(file) ?? '') })),
  };
  const sections = [
    ...document.added.map((file) => `added ${file}\n${lines('+', b.get(file) ?? '')}`),
    ...document.removed.map((file) => `removed ${file}\n${lines('-', a.get(file) ?? '')}`),
    ...document.changed.map(({ file, diff }) => `changed ${file}\n${diff}`),
  ];
  return {
    document,
    text: sections.length === 0 ? 'the texts are identical\n' : `${sections.join('\n\n')}\n`,
  };
}

function textsOf({ files }: StoredPolicySet): Map<string, string> {
  return new Map([
    [SCHEMA_FILE, files.schema],
    ...Object.entries(files.policies).map(([id, text]) => [policyFile(id), text] as const),
  ]);
}

const lines = (sign: string, text: string): string =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => `${sign} ${line}`)
    .join('\n');

/** Above this number of line pairs, both texts are shown in full. */
const MOST_PAIRS = 4_000_000;

/** Line diff by longest common subsequence: `-` for removed lines, `+` for added ones. */
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

/** Lengths of the longest common subsequences of all suffix pairs. */
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
