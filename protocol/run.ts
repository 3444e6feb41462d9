import { equalBytes } from './bytes.js';
import { documentHash, type Sha256 } from './hash.js';
import {
  type OfflineFaultCode,
  type OfflineTrust,
  type Undecidable,
  verifyOffline,
  verifyTlogProof,
} from './offline.js';
import { valueOf } from './offline/read.js';
import { faultOf, undecidable } from './offline/result.js';
import { readAepKeys, readLog } from './offline/trust.js';
import { canonicalBytes } from './json.js';
import type { Aep, AepSubject } from './schemas/aep.js';
import { safeParse } from './schemas/messages.js';
import { type RunPackage, runPackageSchema } from './schemas/run.js';
import type { Effect } from './status.js';
import type { ProofCrypto } from './verify.js';

/** The hash that a close states over the other proofs of its run, in log order; lower-case hex. */
export function membersHash(
  sha256: Sha256,
  members: readonly { proofId: string; aepHash: string }[],
): string {
  return documentHash(
    sha256,
    members.map(({ proofId, aepHash }) => [proofId, aepHash]),
  );
}

/** The defects of a package of a run, besides those of its documents. */
export const RUN_FAULTS = [
  'malformed_run',
  'not_a_close',
  'members_mismatch',
  'log_order_mismatch',
  'run_mismatch',
  'seq_mismatch',
] as const;
export type RunFaultCode = (typeof RUN_FAULTS)[number];

export interface RunFault {
  code: RunFaultCode | OfflineFaultCode;
  /** For display: the wording may change. */
  detail: string;
  /** RFC 6901 JSON Pointer into the package. */
  pointer: string;
}

export interface RunMemberResult {
  proof_id: string;
  leafIndex: number;
  /** The AEP of the member; null once its payload is erased. */
  aep: Aep | null;
}

/**
 * Result of checking the package of a run. `complete`: the pinned log has the close of the run, the members are exactly
 * those that the close states, and all are authentic and in the log. An offline check cannot detect later revocations,
 * nor calls that never reached the service.
 */
export type RunResult =
  | {
      decidable: true;
      complete: boolean;
      /** The AEP of the close. Absent unless complete, like `members` and `missing`. */
      close?: Aep;
      members?: RunMemberResult[];
      /** The numbers of erased members. */
      missing?: number[];
      /** The fault that ended the check; empty without a fault. */
      faults: RunFault[];
    }
  | Undecidable;

type CloseSubject = Extract<AepSubject, { kind: 'close' }>;

class Stop extends Error {
  constructor(readonly result: RunResult) {
    super('the check ended');
  }
}

function fail(code: RunFault['code'], pointer: string, detail: string): never {
  throw new Stop({ decidable: true, complete: false, faults: [{ code, detail, pointer }] });
}

/**
 * Checks the package of a run (`svc.registry.run/1.0`) against pinned keys: up to its close, the run has
 * these entries and no others. Throws only for unusable pins, like `verifyOffline`.
 */
export function verifyRun(input: unknown, trust: OfflineTrust, crypto: ProofCrypto): RunResult {
  try {
    return check(input, trust, crypto);
  } catch (error) {
    if (error instanceof Stop) return error.result;
    throw error;
  }
}

function check(input: unknown, trust: OfflineTrust, crypto: ProofCrypto): RunResult {
  readAepKeys(crypto.sha256, trust.aepKeys);
  if (readLog(crypto.sha256, trust.log) === null) {
    return undecidable('no_pinned_log', 'pin the vkey and origin of the log');
  }
  const { close, members } = readPackage(input);
  const end = placeOf(close, '/close', trust, crypto);
  const placed = members.map((member, i) => placeOf(member, `/members/${i}`, trust, crypto));
  const closed = end.aep!;
  const { subject } = closed;
  if (subject.kind !== 'close') fail('not_a_close', '/close', 'the proof does not end a run');
  requireLogOrder([...placed, end]);
  requireMembers(placed, end, subject, crypto.sha256);
  placed.forEach(({ aep }, i) => {
    if (aep !== null) requireSameRun(aep, closed, subject, `/members/${i}`);
  });
  return {
    decidable: true,
    complete: true,
    close: closed,
    members: placed.map(({ aep, leafIndex, proof_id }) => ({ aep, leafIndex, proof_id })),
    missing: missingNumbers(placed, subject.run.seq),
    faults: [],
  };
}

function readPackage(input: unknown): RunPackage {
  try {
    const read = safeParse(runPackageSchema, valueOf(input));
    if (read.success) return read.data;
    const [issue] = read.error.issues;
    const pointer = (issue?.path ?? []).map((step) => `/${String(step)}`).join('');
    return fail('malformed_run', pointer, issue?.message ?? 'not a package of a run');
  } catch (error) {
    if (error instanceof Stop) throw error;
    const { code, detail } = faultOf(error, 'malformed_export');
    return fail(code, '', detail);
  }
}

export interface PlacedMember extends RunMemberResult {
  aepHash: string;
  /** The hash of the pending AEP that the approval of a second decision names; null for other members. */
  approvedHash: string | null;
  effect: Effect;
  /** The tree in which the inclusion of the member is proved. */
  tree: { size: number; root: Uint8Array };
}

/** A member that is in the log and, unless its payload is erased, authentic. */
function placeOf(
  document: RunPackage['members'][number],
  pointer: string,
  trust: OfflineTrust,
  crypto: ProofCrypto,
): PlacedMember {
  const { entry } = document;
  const result =
    document.proof_record === null
      ? verifyTlogProof(document.tlog_proof, canonicalBytes(entry), trust, crypto)
      : verifyOffline(document, trust, crypto);
  if (!result.decidable) throw new Stop(result);
  const [fault] = result.faults;
  if (fault !== undefined) fail(fault.code, pointer + (fault.pointer ?? ''), fault.detail);
  const { included, leafIndex, under } = result;
  if (included !== true || leafIndex === undefined || under === undefined) {
    fail('not_in_tree', pointer, 'the entry has no inclusion proof');
  }
  const aep = 'aep' in result ? (result.aep ?? null) : null;
  return {
    proof_id: entry.proof_id,
    aepHash: entry.aep_hash,
    approvedHash: document.approval?.envelope.statement.aep_hash ?? null,
    effect: entry.effect,
    aep,
    leafIndex,
    tree: under,
  };
}

/** Members must be in one tree, so that their indexes can be compared, and the close must be last. */
function requireLogOrder(all: readonly PlacedMember[]): void {
  const [{ tree }] = all as [PlacedMember];
  all.forEach((one, i) => {
    const pointer = i === all.length - 1 ? '/close' : `/members/${i}`;
    if (one.tree.size !== tree.size || !equalBytes(one.tree.root, tree.root)) {
      fail('log_order_mismatch', pointer, 'the inclusion proofs have different checkpoints');
    }
    if (i > 0 && all[i - 1]!.leafIndex >= one.leafIndex) {
      const detail = 'the leaf index is not greater than that of the previous entry';
      fail('log_order_mismatch', pointer, detail);
    }
  });
}

function requireMembers(
  members: readonly PlacedMember[],
  close: PlacedMember,
  { count, members_hash }: CloseSubject,
  sha256: Sha256,
): void {
  if (members.length !== count) {
    fail('members_mismatch', '/members', `the close states ${count} proofs, not ${members.length}`);
  }
  const hash = membersHash(
    sha256,
    members.map(({ aepHash, proof_id }) => ({ proofId: proof_id, aepHash })),
  );
  if (hash !== members_hash) {
    fail('members_mismatch', '/members', 'the close states the hash of other proofs');
  }
  // An entry with the id of an earlier proof does not count (spec/log.md, section 11).
  if (new Set([...members, close].map(({ proof_id }) => proof_id)).size <= count) {
    fail('members_mismatch', '/members', 'two entries have the same proof id');
  }
}

function requireSameRun(
  { subject, tenant_id }: Aep,
  close: Aep,
  { agent, run }: CloseSubject,
  pointer: string,
): void {
  const isMember =
    (subject.kind === 'admission' || subject.kind === 'outcome') &&
    tenant_id === close.tenant_id &&
    subject.agent.id === agent.id &&
    subject.run?.id === run.id;
  if (!isMember) fail('run_mismatch', pointer, 'the proof is of another tenant, agent or run');
}

/** A second decision repeats the number of its pending proof, an earlier member whose AEP was approved. */
function requirePending(
  before: readonly PlacedMember[],
  { approvedHash }: PlacedMember,
  pendingId: string,
  seq: number,
  index: number,
): PlacedMember {
  const pending = before.find(({ proof_id }) => proof_id === pendingId);
  const subject = pending?.aep?.subject;
  const isOwn = subject === undefined || ('run' in subject && subject.run.seq === seq);
  const isApproved = pending?.effect === 'REQUIRE_APPROVAL' && pending.aepHash === approvedHash;
  if (isApproved && isOwn) return pending;
  const detail = `no earlier member with seq ${seq} is the pending proof of this second decision`;
  return fail('seq_mismatch', `/members/${index}`, detail);
}

/** The numbers of erased members: those from 0 to `end` − 1 that no member with payload has. */
export function missingNumbers(members: readonly PlacedMember[], end: number): number[] {
  const numbers = new Set<number>();
  const decidedPending = new Set<string>();
  /** The numbers of second decisions whose pending proof is erased, with their indexes. */
  const ofErased: [seq: number, index: number][] = [];
  const failAt = (index: number, detail: string) =>
    fail('seq_mismatch', `/members/${index}`, detail);
  members.forEach((member, i) => {
    const { aep } = member;
    if (aep === null || !('run' in aep.subject)) return;
    const { seq } = aep.subject.run;
    const pendingId = aep.evidence.approval?.pending_proof_id;
    if (pendingId !== undefined) {
      if (decidedPending.has(pendingId)) {
        failAt(i, 'an earlier member is a second decision about the same pending proof');
      }
      decidedPending.add(pendingId);
      const pending = requirePending(members.slice(0, i), member, pendingId, seq, i);
      if (pending.aep === null) ofErased.push([seq, i]);
      return;
    }
    if (seq >= end || numbers.has(seq)) {
      failAt(i, `seq ${seq} is repeated, or not below ${end}, the seq of the close`);
    }
    numbers.add(seq);
  });
  const missing = Array.from({ length: end }, (_, seq) => seq).filter((seq) => !numbers.has(seq));
  if (missing.length > members.filter(({ aep }) => aep === null).length) {
    const detail = `${missing.length} numbers are missing, more than the members that are erased`;
    fail('seq_mismatch', '/members', detail);
  }
  const unclaimed = new Set(missing);
  for (const [seq, i] of ofErased) {
    if (unclaimed.delete(seq)) continue;
    failAt(i, `no erased member is left that could have seq ${seq}`);
  }
  return missing;
}
