import { decidingTexts, inputsFrom, knownInputs } from '#sql/fsck/decisions';
import { pages, type RegistryContext } from './context.js';

/** Size of the cache of known inputs; equal inputs are common. */
const MAX_CACHED = 50_000;
const PAGE_SIZE = 5_000;

/** Checks that the policy inputs that AEPs name are stored. */
export class PolicyInputs {
  private readonly known = new Set<string>();
  private readonly unchecked = new Map<string, string>();

  constructor(private readonly ctx: Pick<RegistryContext, 'sql' | 'findings'>) {}

  /** @param inputHash hex */
  seen(inputHash: string, proofId: string): void {
    if (!this.known.has(inputHash)) this.unchecked.set(inputHash, proofId);
  }

  async check(): Promise<void> {
    if (this.unchecked.size === 0) return;
    const there = await knownInputs(this.ctx.sql, [...this.unchecked.keys()]);
    if (this.known.size > MAX_CACHED) this.known.clear();
    for (const [inputHash, proofId] of this.unchecked) {
      const where = `svc.policy_input input_hash=${inputHash}`;
      if (there.has(inputHash)) this.known.add(inputHash);
      else {
        const expected = `the policy input of proof ${proofId}`;
        this.ctx.findings.add('policy_input_missing', where, expected);
      }
    }
    this.unchecked.clear();
  }
}

/** Checks that policy sets, fixtures and inputs match their hashes. */
export async function checkDecisions({ sql, findings }: RegistryContext): Promise<void> {
  for (const { table, name, isRight } of await decidingTexts(sql)) {
    const code = table === 'fixture' ? 'fixture_altered' : 'policy_set_altered';
    if (!isRight) findings.add(code, `svc.${table} ${name}`, 'the content of that hash');
  }
  const inputs = pages(
    PAGE_SIZE,
    '',
    (...page) => inputsFrom(sql, ...page),
    ({ hash }) => hash,
  );
  for await (const rows of inputs) {
    for (const { hash, isRight } of rows) {
      const where = `svc.policy_input input_hash=${hash}`;
      if (!isRight) findings.add('policy_input_altered', where, 'the input of that hash');
    }
  }
}
