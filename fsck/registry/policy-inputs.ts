import { inputsFrom, knownInputs } from '#sql/fsck/admissions';
import { pages, type RegistryContext } from './context.js';

const PAGE_SIZE = 5_000;
const whereOf = (hash: string): string => `svc.policy_input input_hash=${hash}`;

/**
 * Checks that the policy inputs that AEPs name are stored.
 *
 * @param named a proof by the hash (hex) of its input
 */
export async function checkNamedInputs(
  { sql, findings }: Pick<RegistryContext, 'sql' | 'findings'>,
  named: ReadonlyMap<string, string>,
): Promise<void> {
  const known = await knownInputs(sql, [...named.keys()]);
  for (const [hash, proofId] of named) {
    if (known.has(hash)) continue;
    findings.add('policy_input_missing', whereOf(hash), `the policy input of proof ${proofId}`);
  }
}

/** Checks that stored policy inputs match their hashes. */
export async function checkStoredInputs({ sql, findings }: RegistryContext): Promise<void> {
  for await (const rows of pages('hash', PAGE_SIZE, '', (...page) => inputsFrom(sql, ...page))) {
    for (const { hash, isRight } of rows) {
      if (!isRight) findings.add('policy_input_altered', whereOf(hash), 'the input of that hash');
    }
  }
}
