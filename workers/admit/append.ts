import type { PolicyEngine } from '#policy/decide';
import { beforesIn, type CounterMove, type CounterValues, move, movesOf } from '#policy/counters';
import { deriveAep } from '#policy/derive-aep';
import { parentFault } from '#policy/parent';
import { AEP_PAYLOAD_TYPE, loggedHashes } from '#protocol/aep';
import { pae } from '#protocol/dsse';
import type { PolicyInput } from '#protocol/policy-input';
import type { AepSubject, ClosedRun } from '#protocol/schemas/aep';
import type { Effect } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256, nativeBase64 } from '#runtime/crypto/node';
import {
  claimPending,
  gatesOf,
  refuse,
  type Gate,
  type PendingIntake,
} from '#sql/admissions/append';
import { type AppliedCounter, counterRefs, setCounters } from '#sql/admissions/counters';
import { parentsOf } from '#sql/admissions/intake';
import { announceOutcomes } from '#sql/admissions/outcomes';
import { countOutcomes, stateOf, type BatchOutcomeCount } from '#sql/batches/chunks';
import { pipeline, type Transaction, transaction } from '#sql/db/transaction';
import { appendLocked, type LastTile, lockHead, readLastTile } from '#sql/log/append';
import { countProofs } from '#sql/log/keys';
import { adoptedAt } from '#sql/log/log';
import type { Decision } from '#sql/proofs/rebuild-aep';
import { faultsOfApprovals } from './approvals.js';
import { keyEntryReader, type KeysOfLog, statesOf } from './key-entries.js';
import { closedRunsOf, faultsOfRuns, type RunFault } from './close.js';
import { lossFault } from './losses.js';
import { expectedValues, settleCounters } from './budgets.js';
import { type AdmitContext, NO_METRICS, SigningKeyInactiveError } from './context.js';

/** Outcome of a group, without admissions that another worker committed first. */
export interface Appended {
  admitted: readonly Prepared[];
  rejected: readonly Rejection[];
}

interface Rejection {
  intake: PendingIntake;
  code: string;
  detail: string;
}

/**
 * Appends prepared proofs in one transaction. Under the append lock it claims pending admissions,
 * checks every gate again, and assigns leaf indexes. The proofs are committed when it returns;
 * nothing is written when it throws.
 */
export function append(context: AdmitContext, prepared: Prepared[]): Promise<Appended> {
  const intakes = prepared.map(({ intake }) => intake);
  return appendGroup(context, intakes, () => Promise.resolve(prepared));
}

/** Appends closes of runs. Their AEPs depend on the log, so they are signed under the append lock. */
export async function appendCloses(
  context: AdmitContext,
  intakes: readonly PendingIntake[],
): Promise<Appended> {
  const policies = await Promise.all(
    intakes.map(({ policyDigest }) => context.policy(policyDigest)),
  );
  return appendGroup(context, intakes, async (tx) => {
    const runs = await closedRunsOf(tx, intakes);
    return intakes.map((intake, at) => {
      const { closedRun, runFault } = runs[at]!;
      return { ...sign(context, intake, policies[at]!, expectedValues, closedRun), runFault };
    });
  });
}

async function appendGroup(
  context: AdmitContext,
  intakes: readonly PendingIntake[],
  preparedIn: (tx: Transaction) => Promise<Prepared[]>,
): Promise<Appended> {
  const metrics = context.metrics ?? NO_METRICS;
  const ids = intakes.map(({ proofId }) => proofId);
  const lockStart = performance.now();
  let commitStart = 0;
  const appended = await transaction<Appended, [number, ...Claim]>(
    context.sql,
    async (tx, [size, ...claim]) => {
      const locked = performance.now();
      metrics.took('lock', locked - lockStart);
      const result = await appendClaimed(tx, context, await preparedIn(tx), size, claim);
      commitStart = performance.now();
      if (claim[0].size > 0) metrics.took('append', commitStart - locked);
      return result;
    },
    // In READ COMMITTED each statement sees every earlier append, and the lock excludes new appends.
    (tx) =>
      pipeline(
        lockHead(tx),
        claimPending(tx, intakes),
        keyEntryReader(context.sql, context.logOrigin).read(tx),
        gatesOf(tx, ids),
        readLastTile(tx),
        adoptedAt(tx),
      ),
  );
  // COMMIT POINT: the proofs are durable and may be answered. A crash before it leaves the
  // admissions pending; a crash after it needs no recovery.
  metrics.took('commit', performance.now() - commitStart);
  const { admitted, rejected } = appended;
  const count = (wanted: Effect) => admitted.filter(({ effect }) => effect === wanted).length;
  metrics.committed({
    admitted: count('ADMIT'),
    denied: count('DENY'),
    approval_required: count('REQUIRE_APPROVAL'),
    refused: rejected.length,
  });
  return appended;
}

/** The reads of a worker under the append lock: its claims, the keys, the gates, the end of the log, and the time of the last adoption. */
type Claim = [Set<string>, KeysOfLog, Map<string, Gate>, LastTile | null, number | null];

/** @param size leaves of the log, which cannot change under the append lock */
async function appendClaimed(
  tx: Transaction,
  context: AdmitContext,
  prepared: Prepared[],
  size: number,
  [claims, keys, gates, lastTile, adopted]: Claim,
): Promise<Appended> {
  const claimed = prepared.filter((item) => claims.has(item.intake.proofId));
  if (claimed.length === 0) return { admitted: [], rejected: [] };
  await requireActiveKey(tx, context, keys, size, claimed.length);

  const parentFaults = await faultsOfParents(tx, claimed);
  const approvalFaults = await faultsOfApprovals(
    tx,
    claimed.map(({ intake }) => intake),
    keys.entries,
    size,
  );
  const runFaults = await faultsOfRuns(tx, claimed);
  const rejected: Rejection[] = [];
  const admitted: Prepared[] = [];
  for (const item of claimed) {
    const { intake } = item;
    const { proofId } = intake;
    const gate = gates.get(proofId);
    const rejection =
      rejectionBy(context, item.subject, gate, parentFaults.get(proofId)) ??
      lossFault(item, adopted) ??
      approvalFaults.get(proofId) ??
      runFaults.get(proofId) ??
      item.runFault;
    if (rejection === null) admitted.push(item);
    else rejected.push({ intake, ...rejection });
  }
  await refuse(
    tx,
    rejected.map(({ intake: { proofId }, ...why }) => ({ proofId, ...why })),
  );
  const counters = await settleCounters(tx, admitted, size, ({ intake }, values) =>
    prepare(context, intake, values),
  );
  await pipeline(
    appendLocked(
      tx,
      nativeSha256,
      size,
      admitted.map(({ intake, ...proof }) => ({
        kind: 'proof',
        proofId: intake.proofId,
        tenantNo: intake.tenantNo,
        lane: intake.lane,
        environment: intake.environment,
        validity: intake.validity,
        at: intake.acceptedAt,
        subject: proof.subject,
        decision: proof.decision,
        aepHash: proof.aepHash,
        proofRecordHash: proof.proofRecordHash,
        signature: proof.signature,
      })),
      lastTile,
    ),
    setCounters(tx, counters),
    // No caller waits for the outcome of a batch item.
    announceOutcomes(
      tx,
      claimed.flatMap(({ intake: { proofId, batch } }) => (batch === null ? [proofId] : [])),
    ),
    countOutcomes(tx, [
      ...rejected.flatMap(({ intake }) => countOf(intake, 'refused')),
      ...admitted.flatMap(({ intake, effect }) => countOf(intake, stateOf(effect))),
    ]),
  );
  return { admitted, rejected };
}

/** Requires that the key is active at the next `count` indexes. */
async function requireActiveKey(
  tx: Transaction,
  { keyId, logOrigin }: AdmitContext,
  { entries, states: known }: KeysOfLog,
  size: number,
  count: number,
): Promise<void> {
  let states = known;
  if (states.toCount([keyId]).length > 0) {
    states = statesOf(entries, logOrigin);
    await countProofs(tx, states, [keyId], count);
  }
  for (const index of [size, size + count - 1]) {
    const { state } = states.at(keyId, index);
    if (state === 'active') continue;
    throw new SigningKeyInactiveError(
      `AEP key ${keyId} is ${state} at index ${index}: activate it with admin, or give this worker the active one`,
    );
  }
}

/** Empty outside a batch. */
export const countOf = (
  { batch }: PendingIntake,
  outcome: BatchOutcomeCount['outcome'],
): BatchOutcomeCount[] => (batch === null ? [] : [{ share: batch, outcome }]);

/** Repeats the engine's checks: a gate may have closed since. Null: the item may be signed. */
function rejectionBy(
  context: AdmitContext,
  subject: AepSubject,
  gate: Gate | undefined,
  parentFault: string | undefined,
): Omit<Rejection, 'intake'> | null {
  if (context.admissionsPaused || gate?.environmentOpen !== true) {
    return { code: 'lane_locked', detail: 'admissions were paused before signing' };
  }
  if (!gate.keyHolds) {
    const detail =
      'the API key was revoked before signing, or the key of the approved request was revoked or expired';
    return { code: 'api_key_revoked', detail };
  }
  if (!gate.allowlisted) {
    const detail = 'the tenant left the allowlist before signing';
    return { code: 'tenant_not_allowlisted', detail };
  }
  if (!gate.pinsHold || !isOfAgent(subject, gate.agentId)) {
    const detail =
      'a pinned value is inconsistent: environment, acceptance time, policy set or agent restriction of the API key';
    return { code: 'processing_failed', detail };
  }
  if (parentFault !== undefined) {
    const detail = `${parentFault}: the engine accepted a parent that the policy forbids`;
    return { code: 'processing_failed', detail };
  }
  return null;
}

/** Whether a key restricted to `agentId` may send this request; null means unrestricted. */
function isOfAgent(subject: AepSubject, agentId: string | null): boolean {
  if (agentId === null) return true;
  return subject.kind !== 'execute' && subject.agent.id === agentId;
}

/** Items with a forbidden parent: the worker does not rely on the engine's check. */
async function faultsOfParents(tx: Transaction, items: Prepared[]): Promise<Map<string, string>> {
  const children = items.flatMap(({ intake: { proofId, tenantNo }, subject }) => {
    if (!('parent_proof_id' in subject)) return [];
    return [
      { proofId, kind: subject.kind, parent: { tenantNo, proofId: subject.parent_proof_id } },
    ];
  });
  if (children.length === 0) return new Map();
  const parents = await parentsOf(
    tx,
    children.map(({ parent }) => parent),
  );
  return new Map(
    children.flatMap(({ proofId, kind }, index) => {
      const fault = parentFault(kind, parents[index] ?? null);
      return fault === null ? [] : [[proofId, fault]];
    }),
  );
}

/** An admission that is evaluated, hashed and signed, and has no leaf index yet. */
export interface Prepared {
  intake: PendingIntake;
  effect: Effect;
  subject: AepSubject;
  decision: Decision;
  /** The counters that an admission changes. */
  moves: CounterMove[];
  signature: Uint8Array;
  /** Log commitments, lower-case hex. */
  aepHash: string;
  proofRecordHash: string;
  /** Why a close cannot end its run, or null. */
  runFault: RunFault | null;
}

/**
 * Derives the AEP (canonicalize, evaluate), hashes and signs it. Deterministic for an intake row,
 * policy set, key and counters, as Ed25519 is: a repeated run gives the same bytes.
 *
 * @param values counter values, which an admission changes in place
 */
export async function prepare(
  context: AdmitContext,
  intake: PendingIntake,
  values: CounterValues = expectedValues,
): Promise<Prepared> {
  return sign(context, intake, await context.policy(intake.policyDigest), values);
}

function sign(
  context: AdmitContext,
  intake: PendingIntake,
  policy: PolicyEngine,
  values: CounterValues,
  closedRun: ClosedRun | null = null,
): Prepared {
  let applied: AppliedCounter[] = [];
  const beforesOf = (input: PolicyInput, run: string | null) => {
    const { tenantNo } = intake;
    const acceptedAt = formatTime(intake.acceptedAt);
    applied = counterRefs(policy.counters, input, { acceptedAt, run, tenantNo });
    return beforesIn(values, applied);
  };
  const derived = deriveAep(intake, policy, context.keyId, beforesOf, closedRun);
  const { aep, bytes, decision } = derived;
  const { effect } = aep.decision;
  const signature = context.signer.sign(pae(AEP_PAYLOAD_TYPE, bytes));
  const hashes = loggedHashes(
    nativeSha256,
    {
      proof_id: intake.proofId,
      aep: bytes,
      signature,
      key_id: context.keyId,
    },
    nativeBase64,
  );
  const prepared: Prepared = {
    intake,
    effect,
    subject: aep.subject,
    decision,
    moves: movesOf(decision, applied),
    signature,
    aepHash: hashes.aep_hash,
    proofRecordHash: hashes.proof_record_hash,
    runFault: null,
  };
  move(values, prepared);
  return prepared;
}
