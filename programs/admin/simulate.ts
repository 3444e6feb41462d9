import { SingleBar } from 'cli-progress';
import { preparePolicyEngine, type PolicyEngine } from '#policy/decide';
import { parseStrict } from '#protocol/json';
import type { ExecuteRequest } from '#protocol/schemas/admission';
import type { Effect } from '#protocol/status';
import type { DecidedAdmission } from '#sql/admissions/decided';
import { decidedBelow } from '#sql/admissions/decided';
import type { StoredPolicySet } from '#sql/admissions/policies';
import type { Pool } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { policyInputOf } from '#sql/proofs/rebuild-aep';
import { type Admin, type Outcome, table, UsageError } from './command.js';

const PAGE = 1_000;
/**
 * The scan stops at a page whose admissions were all accepted this long before the period. Earlier
 * entries can be in the period only if the whole page waited this long for its decision.
 */
const LATE_MS = 86_400_000;
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const LISTED = 100;

interface Change {
  proof_id: string;
  tenant_id: string;
  action: string;
  recorded: string;
  simulated: string;
}

/** Decides the admissions of a period again under another set, and lists the decisions that differ. */
export async function simulate(
  { database }: Admin,
  set: StoredPolicySet,
  { since }: { since: string },
): Promise<Outcome> {
  const sql = await database();
  const engine = await preparePolicyEngine(set);
  const from = Date.now() - periodOf(since);
  const counts = { admissions: 0, unchanged: 0, denied: 0, admitted: 0, reasons: 0, erased: 0 };
  const changes: Change[] = [];
  const bar = new SingleBar({
    format: '{bar} {value} log entries evaluated, oldest {at}',
    stream: process.stderr,
  });
  const size = await treeSize(sql);
  bar.start(size, 0, { at: '' });
  for await (const page of pagesSince(sql, size, from)) {
    for (const row of page) {
      if (row.at.getTime() < from) continue;
      if (row.request === null) counts.erased += 1;
      const found = row.request === null ? null : redecided(engine, row, row.request);
      if (found === null) continue;
      counts.admissions += 1;
      counts[found.kind] += 1;
      if (found.kind !== 'unchanged' && changes.length < LISTED) changes.push(found.change);
    }
    const last = page.at(-1)!;
    bar.update(size - last.leafIndex, { at: last.at.toISOString() });
  }
  bar.stop();
  const { admissions, unchanged, denied, admitted, reasons, erased } = counts;
  return {
    document: { since: new Date(from), ...counts, changes },
    text:
      (changes.length === 0 ? '' : `${table(changes)}\n`) +
      `${admissions} admissions: ${unchanged} unchanged, ${denied} would be denied, ` +
      `${admitted} would be admitted, ${reasons} same effect by other rules; ${erased} erased, skipped\n`,
  };
}

async function* pagesSince(sql: Pool, size: number, from: number) {
  for (let below = size; ;) {
    const page = await decidedBelow(sql, below, PAGE);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page;
    if (page.every(({ at }) => at.getTime() < from - LATE_MS)) return;
    below = last.leafIndex;
  }
}

/** The difference between the recorded decision and that of the set; null for an outcome. */
function redecided(
  engine: PolicyEngine,
  row: DecidedAdmission,
  request: Buffer,
): { kind: 'unchanged' | 'denied' | 'admitted' | 'reasons'; change: Change } | null {
  const input = policyInputOf(
    row,
    parseStrict(request) as unknown as ExecuteRequest,
    row.budgets ?? {},
  );
  if (input.action === null) return null;
  const { effect, reasons } = engine.decide(input);
  const text = (decided: Effect, by: readonly string[]) => `${decided} [${by.join(', ')}]`;
  const [recorded, simulated] = [text(row.effect, row.reasons ?? []), text(effect, reasons)];
  const change = {
    proof_id: row.proofId,
    tenant_id: row.tenantId,
    action: input.action,
    recorded,
    simulated,
  };
  if (recorded === simulated) return { kind: 'unchanged', change };
  if (effect === row.effect) return { kind: 'reasons', change };
  return { kind: effect === 'ADMIT' ? 'admitted' : 'denied', change };
}

/** A period such as 90m, 12h or 7d, in milliseconds. */
function periodOf(text: string): number {
  const [, count, unit] = /^([1-9]\d{0,4})([mhd])$/.exec(text) ?? [];
  if (count !== undefined) return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
  throw new UsageError(`${text} is not a period such as 90m, 12h or 7d`);
}
