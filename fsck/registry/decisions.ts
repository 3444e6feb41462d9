import { decidingTexts, inputsFrom } from '#sql/fsck/decisions';
import type { RegistryContext } from './context.js';

const AT_ONCE = 5_000;

/** What decided is kept as it was: policy sets, fixtures and inputs have the hashes they are filed under. */
export async function checkDecisions({ sql, findings }: RegistryContext): Promise<void> {
  for (const { table, name, isRight } of await decidingTexts(sql)) {
    const code = table === 'fixture' ? 'fixture_altered' : 'policy_set_altered';
    if (!isRight) findings.add(code, `svc.${table} ${name}`, 'the content of that hash');
  }
  for (let after = '', more = true; more;) {
    const rows = await inputsFrom(sql, after, AT_ONCE);
    for (const { hash, isRight } of rows) {
      const where = `svc.policy_input input_hash=${hash}`;
      if (!isRight) findings.add('policy_input_altered', where, 'the input of that hash');
    }
    after = rows.at(-1)?.hash ?? after;
    more = rows.length === AT_ONCE;
  }
}
