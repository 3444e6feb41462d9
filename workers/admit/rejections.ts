import type { CounterMove } from '#policy/cedar-context';
import {
  isRunTimely,
  MAX_AHEAD_MS,
  type Parent,
  parentFault,
  parentsOf,
  isPlaceOf,
  placesOf,
  type RunPlace,
  readSecondDecisions,
  type SecondDecision,
  whyNotApprove,
} from '#sql/admissions/references';
import { parentOf } from '#protocol/aep';
import { isActiveApprover } from '#protocol/approvals';
import { uuidTime } from '#protocol/ids';
import type { KeyedEntry } from '#protocol/keys';
import type { AepSubject } from '#protocol/schemas/aep';
import { nativeCrypto } from '#runtime/crypto/node';
import type { Gate, PendingIntake } from '#sql/admissions/pending';
import type { Transaction } from '#sql/db/transaction';
import { readStoredApproval } from '#sql/proofs/rebuild-aep';
import type { AdmitContext } from './context.js';

export interface Fault {
  code:
    | 'api_key_revoked'
    | 'approval_rejected'
    | 'counter_lost'
    | 'invalid_run'
    | 'lane_locked'
    | 'parent_not_found'
    | 'processing_failed'
    | 'run_closed'
    | 'run_incomplete'
    | 'tenant_not_allowlisted';
  detail: string;
}

export interface Claimed {
  intake: PendingIntake;
  subject: AepSubject;
  moves: CounterMove[];
  /** Why a close cannot end its run, or null. */
  runFault: Fault | null;
}

interface UnderLock {
  keys: readonly KeyedEntry[];
  gates: ReadonlyMap<string, Gate>;
  /** The time of the last adoption or retirement of a log, in epoch milliseconds; null without one. */
  lossAt: number | null;
  size: number;
}

/**
 * The faults of items, by proof id. Repeats the engine's checks under the append lock: a permission may
 * have been withdrawn since, and the worker does not rely on the engine.
 */
export async function faultsOf(
  tx: Transaction,
  context: AdmitContext,
  items: readonly Claimed[],
  { gates, keys, lossAt, size }: UnderLock,
): Promise<Map<string, Fault>> {
  const isInRun = ({ intake, subject }: Claimed): boolean =>
    intake.runCloses !== null || runOf(subject) !== undefined;
  const idsOf = (some: readonly Claimed[]): string[] => some.map(({ intake }) => intake.proofId);
  const children = items.filter(({ subject }) => parentOf(subject) !== null);
  const parents = await parentsOf(
    tx,
    children.map(({ intake: { tenantNo }, subject }) => ({
      tenantNo,
      proofId: parentOf(subject)!,
    })),
  );
  const parentsByItem = new Map(children.map((item, at) => [item, parents[at]]));
  const approved = items.filter(({ intake }) => intake.approval !== null);
  const seconds = await readSecondDecisions(tx, idsOf(approved));
  const places = await placesOf(tx, idsOf(items.filter(isInRun)));
  /** Runs that an earlier close of this group ends. */
  const ended = new Set<string>();
  return new Map(
    items.flatMap((item) => {
      const { intake, subject } = item;
      const place = places.get(intake.proofId);
      const run = `${intake.tenantNo} ${place?.runKey ?? ''}`;
      const fault =
        gateFault(context, subject, gates.get(intake.proofId)) ??
        faultOfParent(subject, parentsByItem.get(item)) ??
        lossFault(item, seconds.get(intake.proofId), lossAt) ??
        faultOfApproval(intake, seconds.get(intake.proofId), keys, size) ??
        (isInRun(item) ? faultOfRun(item, place) : null) ??
        (ended.has(run) ? RUN_CLOSED : null) ??
        item.runFault;
      if (fault === null && intake.runCloses === true) ended.add(run);
      return fault === null ? [] : [[intake.proofId, fault]];
    }),
  );
}

function gateFault(
  context: AdmitContext,
  subject: AepSubject,
  gate: Gate | undefined,
): Fault | null {
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
  return null;
}

/** Whether a key restricted to `agentId` may send this request; null means unrestricted. */
function isOfAgent(subject: AepSubject, agentId: string | null): boolean {
  if (agentId === null) return true;
  return subject.kind !== 'execute' && subject.agent.id === agentId;
}

function faultOfParent(subject: AepSubject, parent: Parent | null = null): Fault | null {
  if (!('parent_proof_id' in subject)) return null;
  const fault = parentFault(subject.kind, parent);
  if (fault === null) return null;
  if (fault === 'parent_not_found') {
    return { code: fault, detail: 'the parent was erased before signing, or never existed' };
  }
  const detail = `${fault}: the engine accepted a request whose parent is invalid`;
  return { code: 'processing_failed', detail };
}

/**
 * The fault of an item that depends on lost data, or null. After an adoption or the retirement of a log, the
 * database lacks members of runs, second decisions, and counter values up to the day of the loss.
 */
function lossFault(
  { moves, subject }: Claimed,
  second: SecondDecision | undefined,
  lossAt: number | null,
): Fault | null {
  if (lossAt === null) return null;
  const end = lossAt + MAX_AHEAD_MS;
  const run = runOf(subject);
  // Does not use the time in the id of the pending proof, because an engine's clock set that time.
  const pendingAt = second?.pending?.acceptedAt.getTime() ?? Infinity;
  if ((run && uuidTime(run.id) < end) || pendingAt < end) {
    const detail =
      'the service has lost proofs from the time of this run or pending proof: start a new run, or request a new approval';
    return { code: 'run_closed', detail };
  }
  const day = new Date(lossAt).toISOString().slice(0, 10);
  const counter = moves.find(({ period }) => period !== 'run' && period <= day);
  if (counter === undefined) return null;
  const detail = `the service lost the value of the counter ${counter.name} for ${counter.period}: send the request again on the next day (UTC)`;
  return { code: 'counter_lost', detail };
}

/** Why the approval of a second decision has no effect; null for an item without an approval. */
function faultOfApproval(
  { acceptedAt, approval }: PendingIntake,
  { pending, isSame }: Pick<SecondDecision, 'pending' | 'isSame'> = { pending: null, isSame: null },
  keys: readonly KeyedEntry[],
  size: number,
): Fault | null {
  const stored = readStoredApproval(approval);
  if (stored === null) return null;
  const hash = stored.envelope.statement.registration_hash;
  const rejected = (detail: string): Fault => ({ code: 'approval_rejected', detail });
  if (pending === null) return rejected('the pending proof of the approval does not exist');
  if (isSame === false) return rejected('the request differs from that of the pending proof');
  const isActive = isActiveApprover(keys, hash, size);
  const detail = whyNotApprove(nativeCrypto, stored, { pending, acceptedAt, isActive });
  return detail === null ? null : rejected(detail);
}

const RUN_CLOSED: Fault = {
  code: 'run_closed',
  detail: 'the run was closed before signing',
};

const runOf = (subject: AepSubject) => ('run' in subject ? subject.run : undefined);

function faultOfRun(
  { intake: { acceptedAt }, subject }: Claimed,
  place: (RunPlace & { isClosed: boolean }) | undefined,
): Fault | null {
  const run = runOf(subject);
  if (run === undefined || place === undefined || !isPlaceOf(subject, place)) {
    return {
      code: 'processing_failed',
      detail: 'the stored run or number differs from the request',
    };
  }
  if (!isRunTimely(run, acceptedAt)) {
    return {
      code: 'invalid_run',
      detail: 'the time in the id of the run is more than 60 s after acceptance',
    };
  }
  return place.isClosed ? RUN_CLOSED : null;
}
