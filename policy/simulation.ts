import { parseStrict } from '#protocol/json';
import type { ExecuteRequest } from '#protocol/schemas/admission';
import type { Effect } from '#protocol/status';
import type { DecidedAdmission } from '#sql/admissions/decided';
import { policyInputOf } from '#sql/proofs/rebuild-aep';
import type { PolicyEngine } from './decide.js';

/** Appends are nearly in the order of acceptance; an admission waits for this long at most. */
const LATE_MS = 86_400_000;
const LISTED = 100;

interface Change {
  proof_id: string;
  tenant_id: string;
  action: string;
  recorded: string;
  simulated: string;
}

type Decider = Pick<PolicyEngine, 'decide'>;

/** Pages of decided admissions from the newest on, to the last page that may have one accepted after `from`. */
export async function* decidedSince(
  read: (below: number) => Promise<DecidedAdmission[]>,
  size: number,
  from: number,
): AsyncGenerator<DecidedAdmission[], void> {
  for (let below = size; ;) {
    const page = await read(below);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page;
    if (page.every(({ at }) => at.getTime() < from - LATE_MS)) return;
    below = last.leafIndex;
  }
}

/** Decides admissions accepted after `from` again under another set, and counts and lists the changes. */
export function startSimulation(engine: Decider, from: number) {
  const counts = { admissions: 0, unchanged: 0, denied: 0, admitted: 0, reasons: 0, erased: 0 };
  const changes: Change[] = [];
  const add = (row: DecidedAdmission): void => {
    if (row.at.getTime() < from) return;
    if (row.request === null) counts.erased += 1;
    const found = row.request === null ? null : redecided(engine, row, row.request);
    if (found === null) return;
    counts.admissions += 1;
    counts[found.kind] += 1;
    if (found.kind !== 'unchanged' && changes.length < LISTED) changes.push(found.change);
  };
  return { counts, changes, add };
}

/** The difference between the recorded decision and that of the set; null for an outcome. */
function redecided(
  engine: Decider,
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
