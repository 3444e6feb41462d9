import { stat } from 'node:fs/promises';
import { toHex } from '#protocol/bytes';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { checkPolicyTexts, policyFile, type PolicyProblem } from '#policy/check';
import { makePolicySet, readPolicyFolder, readPolicyTexts, SCHEMA_FILE } from '#policy/policy-set';
import { OperatorError } from '#runtime/process/operator-error';
import { AdministrationError } from '#sql/tenants/administration';
import { readPolicySet, type PolicyFiles, type StoredPolicySet } from '#sql/admissions/policies';
import { reading, type Admin, type Outcome } from './command.js';

export const digestOf = ({ digest }: { digest: Buffer }): string => toHex(digest);

/** Formats a problem as compilers do, so that editors can link it. */
export function problemLine({ file, line, column, severity, message }: PolicyProblem): string {
  const place = line === null ? file : `${file}:${line}:${column ?? 1}`;
  return `${place}: ${severity}: ${message}`;
}

/** The policy texts of a folder, not yet validated. */
export const folderTexts = (folder: string): Promise<Omit<PolicyFiles, 'sentences'>> =>
  reading(folder, () => readPolicyTexts(folder));

/** Builds a set from a folder; the error lists every problem. */
export async function setFromFolder(folder: string): Promise<StoredPolicySet> {
  const problems = await checkPolicyTexts(await folderTexts(folder));
  const errors = problems.filter(({ severity }) => severity === 'error');
  if (errors.length === 0) return makePolicySet(await readPolicyFolder(folder));
  throw new OperatorError(`${folder} cannot be used:\n${errors.map(problemLine).join('\n')}`);
}

/** A stored set by its full digest: a prefix may become ambiguous. */
export async function storedSet({ database }: Admin, digest: string): Promise<StoredPolicySet> {
  if (!HASH_PATTERN.test(digest)) {
    throw new OperatorError(
      `${digest} is not the digest of a policy set, which has 64 characters of 0-9 and a-f: policy list shows them`,
    );
  }
  const stored = await readPolicySet(await database(), Buffer.from(digest, 'hex'));
  if (stored !== null) return stored;
  throw new AdministrationError(
    `no policy set ${digest} is stored: policy list shows the stored sets`,
  );
}

/** A set named by its digest or folder. */
export async function namedSet(admin: Admin, name: string): Promise<StoredPolicySet> {
  const isFolder = await stat(name).then(
    (found) => found.isDirectory(),
    () => false,
  );
  return HASH_PATTERN.test(name) && !isFolder ? storedSet(admin, name) : setFromFolder(name);
}

/** The texts of a set by file name. */
export const textsOf = ({ files }: StoredPolicySet): Map<string, string> =>
  new Map([
    [SCHEMA_FILE, files.schema],
    ...Object.entries(files.policies).map(([id, text]) => [policyFile(id), text] as const),
  ]);

/** The changes from the first set to the second. */
export function policyDiff(before: StoredPolicySet, after: StoredPolicySet): Outcome {
  const [a, b] = [textsOf(before), textsOf(after)];
  const files = [...new Set([...a.keys(), ...b.keys()])].sort();
  const added = files.filter((file) => !a.has(file));
  const removed = files.filter((file) => !b.has(file));
  const changed = files
    .filter((file) => a.has(file) && b.has(file) && a.get(file) !== b.get(file))
    .map((file) => ({ file, diff: textDiff(a.get(file) ?? '', b.get(file) ?? '') }));
  const marked = (sign: string, text = ''): string => text.trimEnd().replaceAll(/^/gm, `${sign} `);
  const sections = [
    ...added.map((file) => `added ${file}\n${marked('+', b.get(file))}`),
    ...removed.map((file) => `removed ${file}\n${marked('-', a.get(file))}`),
    ...changed.map(({ file, diff }) => `changed ${file}\n${diff}`),
  ];
  return {
    document: { before: digestOf(before), after: digestOf(after), added, removed, changed },
    text: sections.length === 0 ? 'the texts are identical\n' : `${sections.join('\n\n')}\n`,
  };
}

/** Line diff by longest common subsequence: `-` for removed lines, `+` for added ones. */
export function textDiff(before: string, after: string): string {
  const [a, b] = [before.split('\n'), after.split('\n')];
  // The length of the longest common subsequence of a from i on and b from j on.
  const table: Uint32Array[] = [];
  const common = (i: number, j: number): number => table[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    const row = (table[i] = new Uint32Array(b.length));
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const isSame = a[i] === b[j];
      row[j] = isSame ? common(i + 1, j + 1) + 1 : Math.max(common(i + 1, j), common(i, j + 1));
    }
  }
  const lines: string[] = [];
  for (let [i, j] = [0, 0]; i < a.length || j < b.length;) {
    if (i < a.length && a[i] === b[j]) {
      lines.push(`  ${a[i++] ?? ''}`);
      j += 1;
    } else if (j >= b.length || (i < a.length && common(i + 1, j) >= common(i, j + 1))) {
      lines.push(`- ${a[i++] ?? ''}`);
    } else lines.push(`+ ${b[j++] ?? ''}`);
  }
  return lines.join('\n');
}
