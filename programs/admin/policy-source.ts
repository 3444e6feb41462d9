import { stat } from 'node:fs/promises';
import { toHex } from '#protocol/bytes';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { checkPolicyTexts, type PolicyProblem } from '#policy/check';
import { makePolicySet, readPolicyFolder, readPolicyTexts } from '#policy/policy-set';
import { OperatorError } from '#runtime/process/operator-error';
import { AdministrationError } from '#sql/tenants/administration';
import { readPolicySet, type PolicyFiles, type StoredPolicySet } from '#sql/admissions/policies';
import type { Admin } from './command.js';
import { reading } from './files.js';

/** Formats a problem as compilers do, so that editors can link it. */
export function problemLine({ file, line, column, severity, message }: PolicyProblem): string {
  const place = line === null ? file : `${file}:${line}:${column ?? 1}`;
  return `${place}: ${severity}: ${message}`;
}

/** The policy texts of a folder, not yet validated. */
export function folderTexts(folder: string): Promise<Omit<PolicyFiles, 'sentences'>> {
  return reading(folder, () => readPolicyTexts(folder));
}

/** Builds a set from a folder; the error lists every problem. */
export async function setFromFolder(folder: string): Promise<StoredPolicySet> {
  const errors = (await checkPolicyTexts(await folderTexts(folder))).filter(
    ({ severity }) => severity === 'error',
  );
  if (errors.length > 0) {
    throw new OperatorError(`${folder} cannot be used:\n${errors.map(problemLine).join('\n')}`);
  }
  return makePolicySet(await readPolicyFolder(folder));
}

/** A stored set by its full digest: a prefix may become ambiguous. */
export async function storedSet(admin: Admin, digest: string): Promise<StoredPolicySet> {
  if (!HASH_PATTERN.test(digest)) {
    throw new OperatorError(
      `${digest} is not the digest of a policy set, which has 64 characters of 0-9 and a-f: policy list shows them`,
    );
  }
  const stored = await readPolicySet(await admin.database(), Buffer.from(digest, 'hex'));
  if (stored !== null) return stored;
  throw new AdministrationError(
    `no policy set ${digest} is stored: policy list shows the stored sets`,
  );
}

/** A set named by its digest or folder. */
export async function namedSet(admin: Admin, name: string): Promise<StoredPolicySet> {
  if (HASH_PATTERN.test(name) && !(await isFolder(name))) return storedSet(admin, name);
  return setFromFolder(name);
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

export const digestOf = ({ digest }: StoredPolicySet): string => toHex(digest);
