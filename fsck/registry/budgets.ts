import { budgetsOf, type Counters } from '#protocol/policy-input';
import { canonicalize } from '#protocol/json';
import { readPolicySet } from '#sql/admissions/policies';
import {
  counterId,
  type CounterRef,
  counterRefs,
  counterRows,
  FIRST_COUNTER,
} from '#sql/admissions/counters';
import type { StoredLeaf } from '#sql/fsck/log';
import type { RegistryContext } from './context.js';

/** Names the row by its primary key, because several agents may have a counter with the same name. */
function rowOf(id: string): string {
  const [tenantNo, key, period] = id.split(' ');
  return `svc.counter tenant_no=${tenantNo} key=${key} period=${period}`;
}

export interface BudgetChainsState {
  values: [counter: string, value: number][];
  gaps: number[];
  hasLostLeaf: boolean;
}

/** Recomputes each counter from the proofs in log order, and compares it with svc.counter. */
export class BudgetChains {
  private readonly values: Map<string, number>;
  /**
   * Tenants with an erased proof, whose counter values cannot be read: the proof may have changed any counter of its
   * tenant.
   */
  private readonly gaps: Set<number>;
  private hasLostLeaf: boolean;
  private readonly sets = new Map<string, Counters>();

  constructor(
    private readonly ctx: RegistryContext,
    state?: BudgetChainsState,
  ) {
    this.values = new Map(state?.values);
    this.gaps = new Set(state?.gaps);
    this.hasLostLeaf = state?.hasLostLeaf ?? false;
  }

  get state(): BudgetChainsState {
    const { gaps, hasLostLeaf, values } = this;
    return { values: [...values], gaps: [...gaps], hasLostLeaf };
  }

  /** Skips a leaf whose counter values are erased or damaged. */
  skip(leaf: StoredLeaf | undefined): void {
    const tenantNo = leaf?.proof?.tenantNo ?? null;
    if (tenantNo === null || !leaf?.isErased) this.hasLostLeaf = true;
    else this.gaps.add(tenantNo);
  }

  /** Checks the counters of a leaf whose proof matches the log. */
  async check({ proof, leafIndex, filedUnder }: StoredLeaf, effect: string): Promise<void> {
    const { budgets, rebuilt, tenantNo } = proof!;
    const { aep, input } = rebuilt!;
    const counters = await this.countersOf(aep.policy.digest);
    const { accepted_at: acceptedAt, subject } = aep;
    const run = 'run' in subject ? subject.run.id : null;
    const at = { acceptedAt, run, tenantNo: tenantNo ?? 0 };
    const applied = counterRefs(counters, input, at);
    if (applied.length === 0 && budgets === null) return;
    const where = `svc.log_entry proof_id=${filedUnder ?? ''} leaf_index=${leafIndex}`;
    const befores = applied.flatMap(({ name, window }) => {
      const recorded = budgets?.[name];
      return recorded === undefined ? [] : [[name, { window, before: recorded.before }] as const];
    });
    const expected = budgetsOf(counters, input, Object.fromEntries(befores));
    if (
      applied.length !== Object.keys(budgets ?? {}).length ||
      canonicalize(expected) !== canonicalize(budgets ?? {})
    ) {
      const values = canonicalize(expected);
      this.report(where, `the counter values ${values} that the proof's policy set gives`);
    }
    for (const { name, ref } of applied) {
      const budget = budgets?.[name];
      if (ref === null || budget === undefined || tenantNo === null) continue;
      const id = counterId(ref);
      const value = this.values.get(id) ?? 0;
      if (!this.agrees(tenantNo, budget.before, value)) {
        const found = `found ${budget.before}`;
        this.report(where, `${name}: ${value} before the action (from the log), ${found}`);
      }
      if (effect === 'ADMIT') this.values.set(id, budget.after);
    }
  }

  /** Compares the rows of svc.counter whose last change came from a leaf below `size`. */
  async finish(): Promise<void> {
    const { size, sql } = this.ctx;
    const missing = new Set(this.values.keys());
    for (let after: CounterRef | undefined = FIRST_COUNTER; after !== undefined;) {
      const rows = await counterRows(sql, after);
      for (const { value, leafIndex, name, ...ref } of rows) {
        const id = counterId(ref);
        missing.delete(id);
        const expected = this.values.get(id) ?? 0;
        if (leafIndex >= size || this.agrees(ref.tenantNo, value, expected)) continue;
        this.report(rowOf(id), `${name}: ${expected} (from the log), found ${value}`);
      }
      after = rows.at(-1);
    }
    for (const id of missing) {
      this.report(rowOf(id), `a row with value ${this.values.get(id) ?? 0}`);
    }
  }

  private report(where: string, expected: string): void {
    this.ctx.findings.add('budget_differs', where, expected);
  }

  private agrees(tenantNo: number, found: number, expected: number): boolean {
    const hasGap = this.hasLostLeaf || this.gaps.has(tenantNo);
    return hasGap ? found >= expected : found === expected;
  }

  private async countersOf(digest: string): Promise<Counters> {
    const known = this.sets.get(digest);
    if (known !== undefined) return known;
    const set = await readPolicySet(this.ctx.sql, Buffer.from(digest, 'hex'));
    if (set === null) {
      const { findings } = this.ctx;
      findings.add('policy_set_altered', `svc.policy_set digest=${digest}`, 'the set of a proof');
      findings.unchecked(`counters under the missing policy set ${digest}`);
    }
    const counters = set?.files.counters ?? {};
    this.sets.set(digest, counters);
    return counters;
  }
}
