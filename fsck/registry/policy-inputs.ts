import { decidingTexts, inputsFrom, knownInputs } from '#sql/fsck/decisions';
import type { RegistryContext } from './context.js';

/** Of so many it is remembered that they are there: equal inputs are common. */
const REMEMBERED = 50_000;

/** Whether the inputs that were decided on are kept, by their hashes in the AEPs. */
export class PolicyInputs {
  private readonly known = new Set<string>();
  private readonly asked = new Map<string, string>();

  constructor(private readonly ctx: Pick<RegistryContext, 'sql' | 'findings'>) {}

  /** @param inputHash in hex */
  seen(inputHash: string, proofId: string): void {
    if (!this.known.has(inputHash)) this.asked.set(inputHash, proofId);
  }

  async check(): Promise<void> {
    if (this.asked.size === 0) return;
    const there = await knownInputs(this.ctx.sql, [...this.asked.keys()]);
    if (this.known.size > REMEMBERED) this.known.clear();
    for (const [inputHash, proofId] of this.asked) {
      if (there.has(inputHash)) this.known.add(inputHash);
      else {
        const where = `svc.policy_input input_hash=${inputHash}`;
        this.ctx.findings.add(
          'policy_input_missing',
          where,
          `what proof ${proofId} was decided on`,
        );
      }
    }
    this.asked.clear();
  }
}

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
