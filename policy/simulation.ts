import { parseStrict } from '#protocol/json';
import { type Budgets, budgetsOf, inputBudgets } from '#protocol/policy-input';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import type { Effect } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { type AppliedCounter, counterId, counterRefs } from '#sql/admissions/counters';
import type { DecidedAdmission } from '#sql/admissions/decided';
import { type DecidedState, stateOf } from '#sql/batches/chunks';
import { policyInputOf, readStoredApproval } from '#sql/proofs/rebuild-aep';
import { beforesIn, type CounterValues, applyMoves, movesOf } from './cedar-context.js';
import { type PolicyEngine, rejectionIn } from './decide.js';

export interface Change {
  proof_id: string;
  tenant_id: string;
  action: string;
  recorded: string;
  simulated: string;
}

type Decider = Pick<PolicyEngine, 'counters' | 'decide'>;

/** Pages of decided admissions in log order, from a leaf index on. */
export async function* decidedSince(
  read: (from: number) => Promise<DecidedAdmission[]>,
  start: number,
): AsyncGenerator<DecidedAdmission[], void> {
  for (let from = start; ;) {
    const page = await read(from);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page;
    from = last.leafIndex + 1;
  }
}

/**
 * Evaluates decided admissions under another set. Counts and lists the changed decisions among admissions
 * accepted at or after `from`. Earlier admissions only set the counters: call `add` in log order, beginning
 * no later than with the first admission of the day of `from`.
 *
 * @param engineOf the engine that decides an admission
 * @param recorded whether counters begin at their recorded values; the set must define the same counters
 * @param most how many changes `changes` keeps, the newest first; `add` returns every change
 */
export function startSimulation(
  engineOf: (row: DecidedAdmission) => Decider,
  from: number,
  { most, recorded = false }: { most: number; recorded?: boolean },
) {
  const values: CounterValues = new Map();
  const admitted = new Set<string>();
  const counts = {
    admissions: 0,
    unchanged: 0,
    denied: 0,
    approval_required: 0,
    admitted: 0,
    reasons: 0,
    erased: 0,
  };
  const changes: Change[] = [];
  const add = (row: DecidedAdmission): Change | null => {
    const found =
      row.request === null
        ? null
        : redecided(engineOf(row), row, row.request, { values, admitted, recorded });
    if (row.at.getTime() < from) return null;
    if (row.request === null) counts.erased += 1;
    if (found === null) return null;
    counts.admissions += 1;
    counts[found.kind] += 1;
    if (found.kind === 'unchanged') return null;
    changes.unshift(found.change);
    if (changes.length > most) changes.pop();
    return found.change;
  };
  return { counts, changes, add };
}

interface Simulated {
  values: CounterValues;
  /** The recorded proofs that require an approval and whose action the simulated set admits without an approval. */
  admitted: Set<string>;
  recorded: boolean;
}

/** The difference between the recorded decision and the decision of the set; null for an outcome or a close. */
function redecided(
  engine: Decider,
  row: DecidedAdmission,
  bytes: Buffer,
  { values, admitted, recorded }: Simulated,
): { kind: 'unchanged' | DecidedState | 'reasons'; change: Change } | null {
  const request = parseStrict(bytes) as unknown as ExecuteRequest | AgentEnvelope;
  const pinned = policyInputOf(row, request);
  if (pinned.action === null) return null;
  const run = 'run' in request ? request.run.id : null;
  const applied = counterRefs(engine.counters, pinned, {
    acceptedAt: formatTime(row.at.getTime()),
    run,
    tenantNo: row.tenantNo,
  });
  if (recorded) startAtRecorded(values, applied, row.budgets ?? {});
  const budgets = budgetsOf(engine.counters, pinned, beforesIn(values, applied));
  const approves = readStoredApproval(row.approval)?.envelope.statement.proof_id;
  // This set already admitted the pending action, so the second decision must not count the action again.
  const isAdmitted = approves !== undefined && admitted.has(approves);
  const { effect, reasons } = isAdmitted
    ? { effect: row.effect, reasons: row.reasons ?? [] }
    : (rejectionIn(row) ?? engine.decide({ ...pinned, budgets: inputBudgets(budgets) }));
  if (!isAdmitted) applyMoves(values, { effect, moves: movesOf({ budgets }, applied) });
  if (row.effect === 'REQUIRE_APPROVAL' && effect === 'ADMIT') admitted.add(row.proofId);
  const text = (decided: Effect, by: readonly string[]) => `${decided} [${by.join(', ')}]`;
  const [before, after] = [text(row.effect, row.reasons ?? []), text(effect, reasons)];
  const change = {
    proof_id: row.proofId,
    tenant_id: row.tenantId,
    action: pinned.action,
    recorded: before,
    simulated: after,
  };
  if (before === after) return { kind: 'unchanged', change };
  if (effect === row.effect) return { kind: 'reasons', change };
  return { kind: stateOf(effect), change };
}

function startAtRecorded(
  values: CounterValues,
  applied: readonly AppliedCounter[],
  budgets: Budgets,
): void {
  for (const { name, ref } of applied) {
    const before = Object.hasOwn(budgets, name) ? budgets[name]!.before : 0;
    if (ref !== null && !values.has(counterId(ref))) values.set(counterId(ref), before);
  }
}
