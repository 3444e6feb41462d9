import { applyMoves, beforesIn, type CounterValues, movesOf } from '#policy/cedar-context';
import { type PolicyEngine, deriveAep, readIntake } from '#policy/decide';
import { incompletenessOf, membersOf, placesOf } from '#sql/admissions/references';
import { AEP_PAYLOAD_TYPE, loggedHashes } from '#protocol/aep';
import { pae } from '#protocol/dsse';
import type { ClosedRun } from '#protocol/schemas/aep';
import type { Effect } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256, nativeBase64 } from '#runtime/crypto/node';
import {
  type AppendStart,
  beginAppend,
  storeRejections,
  type PendingIntake,
} from '#sql/admissions/pending';
import {
  counterId,
  counterRefs,
  type CounterRow,
  readCounters,
  setCounters,
} from '#sql/admissions/counters';
import { announceOutcomes } from '#sql/admissions/outcomes';
import { countOutcomes, stateOf, type BatchOutcomeCount } from '#sql/batches/chunks';
import { pipeline, type Transaction, transaction } from '#sql/db/transaction';
import { appendEntries } from '#sql/log/append';
import { countProofs, type KeysOfLog, keyEntryReader, statesOf } from '#sql/log/keys';
import { type Decision, statedRun } from '#sql/proofs/rebuild-aep';
import { type AdmitContext, SigningKeyInactiveError } from './context.js';
import { type Claimed, type Fault, faultsOf } from './rejections.js';

/** Result of a group, without admissions that another worker committed first. */
export interface Appended {
  admitted: readonly Prepared[];
  rejected: readonly Rejection[];
}

interface Rejection extends Fault {
  intake: PendingIntake;
}

/**
 * Appends prepared proofs in one transaction. Under the append lock it claims pending admissions,
 * checks every gate (allowlist, environment, API key) again, and assigns leaf indexes. When `append`
 * returns, the proofs are committed; when it throws, nothing is written, unless the connection was lost
 * during the commit.
 */
export function append(context: AdmitContext, prepared: Prepared[]): Promise<Appended> {
  return commitGroup(context, (tx) => appendPrepared(tx, context, prepared));
}

/** Appends closes of runs, whose AEPs depend on the log and are therefore signed under the append lock. */
export async function appendCloses(
  context: AdmitContext,
  closes: readonly Pick<Prepared, 'intake'>[],
): Promise<Appended> {
  const intakes = closes.map(({ intake }) => intake);
  const policies = await Promise.all(
    intakes.map(({ policyDigest }) => context.policy(policyDigest)),
  );
  return commitGroup(context, async (tx) => {
    const locked = await lockAndClaim(tx, context, intakes);
    if (locked === null) return NOTHING;
    const runs = await closedRunsOf(tx, intakes);
    const prepared = intakes.map((intake, at) => {
      const { closedRun, runFault } = runs[at]!;
      return { ...sign(context, intake, policies[at]!, predictedValues, closedRun), runFault };
    });
    return appendClaimed(tx, context, prepared, locked);
  });
}

/** For each close, the logged proofs of its run, and the reason if the close cannot end the run. */
async function closedRunsOf(tx: Transaction, intakes: readonly PendingIntake[]) {
  const proofIds = intakes.map(({ proofId }) => proofId);
  const places = await placesOf(tx, proofIds);
  const closings: { closedRun: ClosedRun | null; runFault: Fault | null }[] = [];
  for (const { proofId, tenantNo } of intakes) {
    const place = places.get(proofId);
    const run = place === undefined ? [] : await membersOf(tx, tenantNo, place.runKey);
    // Another close is not a member of the run: once this close ends the run, the worker rejects every other close.
    const members = run.filter(({ closes }) => !closes);
    const detail = incompletenessOf(members)(place?.seq ?? 0);
    const logged = members.map((member) => ({ ...member, aepHash: member.aepHash ?? '' }));
    const runFault = detail === null ? null : ({ code: 'run_incomplete', detail } as const);
    closings.push({ closedRun: statedRun(logged), runFault });
  }
  return closings;
}

/**
 * Commits the outcomes that `work` appends.
 *
 * @param opening sends statements in the round trip of `begin`, as for `transaction`
 */
export async function commitGroup<O = void>(
  context: AdmitContext,
  work: (tx: Transaction, opened: O) => Promise<Appended>,
  opening?: (tx: Transaction) => Promise<O>,
): Promise<Appended> {
  const { metrics } = context;
  let commitStart = 0;
  const appended = await transaction<Appended, O>(
    context.sql,
    async (tx, opened) => {
      const result = await work(tx, opened);
      commitStart = performance.now();
      return result;
    },
    opening,
  );
  // COMMIT POINT: the proofs are durable and callers may get them. A crash before this point leaves the
  // admissions pending; a later crash needs no recovery.
  metrics?.took('commit', performance.now() - commitStart);
  const { admitted, rejected } = appended;
  const count = (wanted: Effect) => admitted.filter(({ effect }) => effect === wanted).length;
  metrics?.committed({
    admitted: count('ADMIT'),
    denied: count('DENY'),
    approval_required: count('REQUIRE_APPROVAL'),
    refused: rejected.length,
  });
  return appended;
}

const NOTHING: Appended = { admitted: [], rejected: [] };

export async function appendPrepared(
  tx: Transaction,
  context: AdmitContext,
  prepared: Prepared[],
): Promise<Appended> {
  if (prepared.length === 0) return NOTHING;
  const intakes = prepared.map(({ intake }) => intake);
  const locked = await lockAndClaim(tx, context, intakes);
  return locked === null ? NOTHING : appendClaimed(tx, context, prepared, locked);
}

/** What an append of claimed admissions reads under the append lock. */
interface Locked extends AppendStart {
  keys: KeysOfLog;
  /** When the lock was taken, by `performance.now()`. */
  lockedAt: number;
}

/** Takes the append lock and claims the admissions; null when other workers have claimed all of them. */
async function lockAndClaim(
  tx: Transaction,
  context: AdmitContext,
  intakes: readonly PendingIntake[],
): Promise<Locked | null> {
  const reading = keyEntryReader(context.sql, context.logOrigin).begin();
  const lockStart = performance.now();
  const start = await beginAppend(tx, intakes, reading.from);
  const lockedAt = performance.now();
  context.metrics?.took('lock', lockedAt - lockStart);
  if (start.claims.size === 0) return null;
  return { ...start, keys: await reading.add(tx, start.keyEntries), lockedAt };
}

/** Appends those of the prepared admissions that this transaction claimed. */
async function appendClaimed(
  tx: Transaction,
  context: AdmitContext,
  prepared: Prepared[],
  { size, claims, gates, keys, lastTile, lockedAt, lossAt }: Locked,
): Promise<Appended> {
  const claimed = prepared.filter(({ intake }) => claims.has(intake.proofId));
  await requireActiveKey(tx, context, keys, size, claimed.length);

  const read = { keys: keys.entries, gates, lossAt, size };
  const faults = await faultsOf(tx, context, claimed, read);
  const rejected = claimed.flatMap(({ intake }) => {
    const fault = faults.get(intake.proofId);
    return fault === undefined ? [] : [{ intake, ...fault }];
  });
  const admitted = claimed.filter(({ intake }) => !faults.has(intake.proofId));
  await storeRejections(
    tx,
    rejected.map(({ intake: { proofId }, ...why }) => ({ proofId, ...why })),
  );
  const counters = await correctCounters(tx, context, admitted, size);
  const entries = admitted.map(({ intake, ...proof }) => ({
    ...intake,
    ...proof,
    kind: 'proof' as const,
    at: intake.acceptedAt,
  }));
  // Omits batch items, because no caller waits for their decisions.
  const awaited = claimed.flatMap(({ intake: { proofId, batch } }) =>
    batch === null ? [proofId] : [],
  );
  await pipeline(
    appendEntries(tx, size, entries, lastTile),
    setCounters(tx, counters),
    announceOutcomes(tx, awaited),
    countOutcomes(tx, [
      ...rejected.flatMap(({ intake }) => countOf(intake, 'refused')),
      ...admitted.flatMap(({ intake, effect }) => countOf(intake, stateOf(effect))),
    ]),
  );
  context.metrics?.took('append', performance.now() - lockedAt);
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
    const isDelegated = (states.keyOf(keyId)?.root ?? null) !== null;
    const remedy = isDelegated
      ? 'this worker resumes when its root key has delegated to a new key'
      : state === 'unknown'
        ? 'activate it with admin aep-key activate, or give this worker the active key'
        : 'give this worker an active key';
    throw new SigningKeyInactiveError(`AEP key ${keyId} is ${state} at index ${index}: ${remedy}`);
  }
}

/** The outcome to count in the batch of an admission; empty without a batch. */
export const countOf = (
  { batch }: PendingIntake,
  outcome: BatchOutcomeCount['outcome'],
): BatchOutcomeCount[] => (batch === null ? [] : [{ batch, outcome }]);

/**
 * Under the append lock, reads the counters, and evaluates and signs again each proof whose predicted counter values
 * were wrong. Replaces these proofs in `admitted`; returns the rows to write.
 *
 * @param size the index of the first proof
 */
async function correctCounters(
  tx: Transaction,
  context: AdmitContext,
  admitted: Prepared[],
  size: number,
): Promise<CounterRow[]> {
  const refs = admitted.flatMap(({ moves }) => moves);
  if (refs.length === 0) return [];
  // Discards the predictions when there are too many: every value is read again under the lock anyway.
  if (predictedValues.size > PREDICTED_LIMIT) predictedValues.clear();
  const values = await readCounters(tx, refs);
  const rows = new Map<string, CounterRow>();
  let wasPredicted = true;
  for (const [at, item] of admitted.entries()) {
    const isCurrent = item.moves.every((one) => one.before === (values.get(counterId(one)) ?? 0));
    const corrected = isCurrent ? item : await prepare(context, item.intake, values);
    admitted[at] = corrected;
    wasPredicted &&= isCurrent;
    applyMoves(values, corrected);
    if (corrected.effect !== 'ADMIT') continue;
    for (const one of corrected.moves) {
      const row = { ...one, value: one.after, leafIndex: size + at };
      rows.set(counterId(one), row);
    }
  }
  if (!wasPredicted) {
    for (const one of refs) predictedValues.set(counterId(one), values.get(counterId(one)) ?? 0);
  }
  return [...rows.values()];
}

/**
 * Predicted counter values: a group is signed before it has the append lock. After a wrong
 * prediction, the policy is evaluated again under the lock.
 */
const predictedValues: CounterValues = new Map();
const PREDICTED_LIMIT = 10_000;

/** An admission that is evaluated, hashed and signed, and has no leaf index yet. */
export interface Prepared extends Claimed {
  effect: Effect;
  decision: Decision;
  signature: Uint8Array;
  /** Log commitments, lower-case hex. */
  aepHash: string;
  proofRecordHash: string;
}

/**
 * Derives the AEP (canonicalize, evaluate), hashes and signs it. Depends only on the intake row,
 * policy set, key and counters, and Ed25519 is deterministic: a repeated run gives the same bytes.
 *
 * @param values counter values, which an admission changes in place
 */
export async function prepare(
  context: AdmitContext,
  intake: PendingIntake,
  values: CounterValues = predictedValues,
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
  const { tenantNo } = intake;
  const acceptedAt = formatTime(intake.acceptedAt);
  const read = readIntake(intake);
  const { input, run } = read;
  const applied = counterRefs(policy.counters, input, { acceptedAt, run, tenantNo });
  const befores = beforesIn(values, applied);
  const derived = deriveAep(read, policy, context.keyId, befores, closedRun);
  const { aep, bytes, decision } = derived;
  const { effect } = aep.decision;
  const signature = context.signer.sign(pae(AEP_PAYLOAD_TYPE, bytes));
  const hashes = loggedHashes(
    nativeSha256,
    { proof_id: intake.proofId, aep: bytes, signature, key_id: context.keyId },
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
  applyMoves(values, prepared);
  return prepared;
}
