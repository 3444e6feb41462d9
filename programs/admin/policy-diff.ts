import { policyFile } from '#policy/check';
import { SCHEMA_FILE } from '#policy/policy-set';
import type { StoredPolicySet } from '#sql/policies';
import type { Outcome } from './command.js';
import { digestOf } from './policy-source.js';
import { textDiff } from './text-diff.js';

/** What the second set has otherwise than the first. */
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
    text: sections.length === 0 ? 'the texts are the same\n' : `${sections.join('\n\n')}\n`,
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
