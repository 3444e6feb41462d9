import { whyNotApprove } from '#policy/approval-fault';
import type { CounterMove } from '#policy/counters';
import { parentFault } from '#policy/parent';
import { isRunTimely, MAX_AHEAD_MS } from '#policy/run';
import { isActiveApprover } from '#protocol/approvals';
import { uuidTime } from '#protocol/ids';
import type { KeyedEntry } from '#protocol/keys';
import type { AepSubject } from '#protocol/schemas/aep';
import { nativeCrypto } from '#runtime/crypto/node';
import type { Gate, PendingIntake } from '#sql/admissions/append';
import { parentsOf } from '#sql/admissions/intake';
import { isPlaceOf, placesOf, type RunPlace } from '#sql/admissions/runs';
import type { Transaction } from '#sql/db/transaction';
import { readStoredApproval } from '#sql/proofs/rebuild-aep';
import { readSecondDecisions } from '#sql/proofs/second-decisions';
import type { AdmitContext } from './context.js';

/** Why an item must not be appended. */
export interface Fault {
  code:
    | 'api_key_revoked'
    | 'approval_rejected'
    | 'invalid_run'
    | 'lane_locked'
    | 'processing_failed'
    | 'run_closed'
    | 'run_incomplete'
    | 'tenant_not_allowlisted';
  detail: string;
}

/** A claimed admission. */
export interface Claimed {
  intake: PendingIntake;
  subject: AepSubject;
  /** The counters that an admission changes. */
  moves: CounterMove[];
  /** Why a close cannot end its run, or null. */
  runFault: Fault | null;
}

/** Data that the worker has read under the append lock. */
interface Read {
  /** The key entries of the log. */
  keys: readonly KeyedEntry[];
  gates: ReadonlyMap<string, Gate>;
  /** The time of the last adoption, in epoch milliseconds, or null. */
  adopted: number | null;
  /** The index of the next leaf. */
  size: number;
}

/**
 * The faults of items, by proof id. Repeats the engine's checks under the append lock: a gate may have
 * closed since, and the worker does not rely on the engine.
 */
export async function faultsOf(
  tx: Transaction,
  context: AdmitContext,
  items: readonly Claimed[],
  { adopted, gates, keys, size }: Read,
): Promise<Map<string, Fault>> {
  const parentFaults = await faultsOfParents(tx, items);
  const approvalFaults = await faultsOfApprovals(tx, items, keys, size);
  const runFaults = await faultsOfRuns(tx, items);
  return new Map(
    items.flatMap((item) => {
      const { proofId } = item.intake;
      const fault =
        gateFault(context, item.subject, gates.get(proofId)) ??
        parentFaults.get(proofId) ??
        lossFault(item, adopted) ??
        approvalFaults.get(proofId) ??
        runFaults.get(proofId) ??
        item.runFault;
      return fault === null ? [] : [[proofId, fault]];
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

async function faultsOfParents(
  tx: Transaction,
  items: readonly Claimed[],
): Promise<Map<string, Fault>> {
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
      const detail = `${fault}: the engine accepted a parent that the policy forbids`;
      return fault === null ? [] : [[proofId, { code: 'processing_failed', detail }]];
    }),
  );
}

/**
 * The fault of an item that depends on data that the service lost with adopted leaves, or null. Such
 * data are members of a run, second decisions, and counter values up to the day of the adoption.
 */
function lossFault({ intake, moves, subject }: Claimed, adopted: number | null): Fault | null {
  if (adopted === null) return null;
  const end = adopted + MAX_AHEAD_MS;
  const run = runOf(subject);
  const pending = readStoredApproval(intake.approval)?.envelope.statement.proof_id;
  if ((run && uuidTime(run.id) < end) || (pending !== undefined && uuidTime(pending) < end)) {
    const detail =
      'the service has lost proofs from the time of this run or pending proof: start a new run, or request a new approval';
    return { code: 'run_closed', detail };
  }
  const day = new Date(adopted).toISOString().slice(0, 10);
  const counter = moves.find(({ period }) => period !== 'run' && period <= day);
  if (counter === undefined) return null;
  const detail = `the service lost the value of the counter ${counter.name} for ${counter.period}: send the request again on the next day (UTC)`;
  return { code: 'processing_failed', detail };
}

/** Why the approvals of second decisions have no effect. Reads nothing for items without approvals. */
async function faultsOfApprovals(
  tx: Transaction,
  items: readonly Claimed[],
  keys: readonly KeyedEntry[],
  size: number,
): Promise<Map<string, Fault>> {
  const seconds = items.map(({ intake }) => intake).filter(({ approval }) => approval !== null);
  if (seconds.length === 0) return new Map();
  const rows = await readSecondDecisions(
    tx,
    seconds.map(({ proofId }) => proofId),
  );
  return new Map(
    seconds.flatMap(({ proofId, acceptedAt, approval }) => {
      const stored = readStoredApproval(approval)!;
      const { pending = null, isSame } = rows.get(proofId) ?? {};
      const hash = stored.envelope.statement.registration_hash;
      const fault =
        pending === null
          ? 'the pending proof of the approval does not exist'
          : isSame === false
            ? 'the request differs from that of the pending proof'
            : whyNotApprove(nativeCrypto, stored, {
                pending,
                acceptedAt,
                isActive: isActiveApprover(keys, hash, size),
              });
      return fault === null ? [] : [[proofId, { code: 'approval_rejected', detail: fault }]];
    }),
  );
}

export const RUN_CLOSED: Fault = { code: 'run_closed', detail: 'the run was closed before' };

async function faultsOfRuns(
  tx: Transaction,
  items: readonly Claimed[],
): Promise<Map<string, Fault>> {
  const inRuns = items.filter(
    ({ intake, subject }) => intake.runCloses !== null || runOf(subject) !== undefined,
  );
  if (inRuns.length === 0) return new Map();
  const places = await placesOf(
    tx,
    inRuns.map(({ intake }) => intake.proofId),
  );
  return new Map(
    inRuns.flatMap((item) => {
      const { proofId } = item.intake;
      const fault = runFault(item, places.get(proofId));
      return fault === null ? [] : [[proofId, fault]];
    }),
  );
}

const runOf = (subject: AepSubject) => ('run' in subject ? subject.run : undefined);

function runFault(
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
