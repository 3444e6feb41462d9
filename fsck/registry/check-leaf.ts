import { approvalAt } from '#protocol/approvals';
import { isPlaceOf } from '#sql/admissions/references';
import { isReasonOf, readEntry } from '#protocol/entries';
import type { KeyState } from '#protocol/keys';
import type { Aep } from '#protocol/schemas/aep';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import { type ArtifactKind, type Decided, isProofOnly } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { type Check, examineProof } from '#protocol/verify';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { StoredLeaf } from '#sql/fsck/log';
import { proofAbout, reasonDocument } from '#sql/fsck/lifecycle';
import { columnsUnlikeAep, filedEntry } from '#sql/log/leaf-checks';
import type { FindingCode } from '../findings.js';
import { isRequestOf, type RegistryContext, type KeyHistory } from './context.js';

/** The registry's result for a leaf, for comparison with the published record of its proof. */
export interface LeafCheckResult {
  leafIndex: number;
  /** Null for a damaged leaf, and for a leaf other than a proof. */
  proofId: string | null;
  /** Whether the proof verifies; null when unknown. */
  verifies: boolean | null;
  /** The proof fails only because its key is compromised. */
  isVoided: boolean;
  /** The decision in the AEP; null when the AEP is damaged. */
  decision: (Decided & { environment: 'sandbox' | 'live'; keyId: string }) | null;
  /** The expiries of the artifacts from the AEP, in epoch milliseconds. */
  ends: readonly { kind: ArtifactKind; expiresAt: number }[];
}

export type ChunkCheckResult = ReadonlyMap<number, LeafCheckResult>;

/** A root cause; findings that only follow from it are not reported. */
export interface Fault {
  code: FindingCode;
  table: 'log_entry' | 'intake';
  expected: string;
}

export interface ProofCheckResult {
  /** Whether the proof verifies; null when the key history lacks the key of the proof. */
  verifies: boolean | null;
  /** Null when the stored bytes do not match the hash in the log. */
  aep: Aep | null;
  faults: Fault[];
}

/**
 * Recomputes a proof from its rows, including its leaf hash, and checks it.
 *
 * @param inTree the leaf hash in the tree
 * @param isEntryRight whether the log row has the hash `inTree`
 */
export function checkProof(
  leaf: StoredLeaf,
  keys: KeyHistory,
  inTree: Uint8Array,
  isEntryRight: boolean,
): ProofCheckResult {
  const { proof, filedUnder, leafIndex } = leaf;
  if (proof === null || filedUnder === null) return failed();
  const isAdmissionLost = leaf.isErased && proof.tenantNo === null;
  if (!proof.hasIntake && !isAdmissionLost) {
    // A damaged log row may name another admission.
    if (!isEntryRight) return failed();
    return failed(fault('intake_missing', 'the intake row of the proof', 'intake'));
  }
  if (leaf.isErased) return checkErased(proof);
  const { rebuilt, signature } = proof;
  const missing = missingPayload(proof);
  if (missing !== null) return failed(missing);
  if (rebuilt === null || signature === null) return failed(alteration(proof));
  const key = keys.states.at(proof.keyId, leafIndex);
  const { checks, aep } = examineProof(nativeCrypto, {
    proof_id: filedUnder,
    request: proof.request,
    seed: proof.seed,
    aep: rebuilt.bytes,
    built: rebuilt,
    signature,
    entry: leaf.entry,
    leafIndex,
    key,
    approval: approvalAt(leafIndex, keys.entries, proof.approval),
    inclusion: { leafHashInTree: inTree },
  });
  const isFailed = (name: Check['name']): boolean =>
    checks.some((check) => check.name === name && check.result === 'fail');
  // A damaged log row is reported elsewhere; findings that follow from it are omitted.
  if (!isEntryRight) return { ...failed(), aep: isFailed('signature') ? null : aep };
  if (isFailed('aep_hash')) return failed(alteration(proof));
  if (isFailed('aep_schema')) {
    return failed(fault('aep_invalid', 'an AEP with the fields of svc.aep/1.1'));
  }
  const ofChecks = checkFaults(proof, key, checks);
  const columns = columnFaults(proof, aep);
  const isKeyUnknown = isFailed('signing_key') && key.state === 'unknown';
  const isProofWrong =
    (isFailed('signing_key') && !isKeyUnknown) || ofChecks.length > 0 || columns.failsProof;
  return {
    verifies: isProofWrong ? false : isKeyUnknown ? null : true,
    aep,
    faults: [...ofChecks, ...columns.faults],
  };
}

type StoredProof = NonNullable<StoredLeaf['proof']>;

const fault = (
  code: FindingCode,
  expected: string,
  table: Fault['table'] = 'log_entry',
): Fault => ({ code, expected, table });

const failed = (...faults: Fault[]): ProofCheckResult => ({ verifies: false, aep: null, faults });

const isPresent = (value: unknown): boolean => (value ?? null) !== null;

/** An erased proof cannot be derived again, so its verdict decides what may be published. */
function checkErased({ payload }: StoredProof): ProofCheckResult {
  const left = Object.keys(payload).filter((name) => isPresent(payload[name]));
  const expected = `no payload after its erasure, found ${left.join(', ')}`;
  const faults = left.length === 0 ? [] : [fault('erasure_incomplete', expected)];
  return { verifies: null, aep: null, faults };
}

function missingPayload({ payload }: StoredProof): Fault | null {
  const missing = Object.keys(payload).filter(
    (name) => !isPresent(payload[name]) && !OPTIONAL.has(name),
  );
  if (missing.length === 0) return null;
  const table = missing.some((name) => IN_INTAKE.has(name)) ? 'intake' : 'log_entry';
  return fault('proof_payload_missing', `${missing.join(', ')}, or an erasure record`, table);
}

/** The fault of rows that do not yield the AEP in the log. */
function alteration(proof: StoredProof): Fault {
  if (!isRequestOf(proof.request, proof.requestHash)) return requestAltered(proof);
  const expected = 'columns and an intake row that yield the AEP whose hash is in the log entry';
  return fault('aep_altered', expected);
}

const requestAltered = ({ requestHash }: StoredProof): Fault =>
  fault('request_altered', `the accepted request, with hash ${requestHash}`, 'intake');

function checkFaults(proof: StoredProof, key: KeyState, checks: readonly Check[]): Fault[] {
  const details = new Map(
    checks.flatMap(({ name, result, detail = '' }) =>
      result === 'fail' ? [[name, detail] as const] : [],
    ),
  );
  const faults: Fault[] = [];
  if (details.has('approval')) {
    const expected = `an approval of this decision, found: ${details.get('approval')!}`;
    faults.push(fault('approval_invalid', expected, 'intake'));
  }
  if (details.has('request_hash')) faults.push(requestAltered(proof));
  // A compromised key is not damage: the log records it, and the proof is not reported as valid.
  if (details.has('signing_key') && key.state !== 'unknown' && key.state !== 'compromised') {
    const expected = `a key that is active at this leaf; ${proof.keyId} is ${key.state}`;
    faults.push(fault('key_not_active', expected));
  }
  if (details.has('signature') && key.publicKey !== null) {
    const expected = `a signature of the AEP by ${proof.keyId}`;
    faults.push(fault('signature_invalid', expected));
  } else if (details.has('proof_record_hash')) {
    const expected = 'a proof record with the hash in the log entry';
    faults.push(fault('proof_record_differs', expected));
  }
  return faults;
}

/** `failsProof`: whether the verifier also compares one of the differing columns, so that the proof fails. */
function columnFaults(proof: StoredProof, aep: Aep | null) {
  const faults: Fault[] = [];
  const columns = aep === null ? [] : columnsUnlikeAep(proof, aep);
  if (columns.length > 0) {
    const expected = `${columns.join(', ')} as in the AEP`;
    faults.push(fault('columns_differ', expected));
  }
  const pinned = proof.differing.filter((name) => !columns.includes(name));
  if (aep !== null && !isPlaceOf(aep.subject, proof.run)) pinned.push('run');
  if (pinned.length > 0) {
    const expected = `${pinned.join(', ')} as in the log entry`;
    faults.push(fault('intake_differs', expected, 'intake'));
  }
  const isCompared = (name: string): boolean => name === 'tenant_no' || name === 'lane';
  return { faults, failsProof: columns.length > 0 || pinned.some(isCompared) };
}

/** Members of the payload that some kinds of requests lack. */
const OPTIONAL: ReadonlySet<string> = new Set([
  'approval',
  'budgets',
  'action',
  'intent_id',
  'parent',
]);

const IN_INTAKE: ReadonlySet<string> = new Set(['request', 'request_hash', 'seed', 'approval']);

/** Whether the leaf is a proof that verifies by its own rows; does not compare it with the tree. */
export function isConsistent(leaf: StoredLeaf, keys: KeyHistory, ownHash: Uint8Array): boolean {
  // Without a payload, the row of an erased proof cannot be checked.
  if (leaf.kind !== 'proof' || leaf.isErased) return false;
  const { verifies, faults } = checkProof(leaf, keys, ownHash, true);
  return verifies !== false && faults.length === 0;
}

/**
 * Checks a leaf that is not a proof and whose bytes match the log. Returns whether its columns match its
 * entry, as the verifier requires.
 *
 * @param hasDamagedLeaf whether an earlier leaf is damaged: a proof that the log seems to lack may
 *   be that leaf
 */
export async function checkOtherLeaf(
  ctx: RegistryContext,
  leaf: StoredLeaf,
  hasDamagedLeaf: boolean,
): Promise<boolean> {
  const where = `svc.log_entry leaf_index=${leaf.leafIndex}`;
  const isFiled = filedEntry(leaf) !== null;
  const entry = readEntry(leaf.entry);
  if (!isFiled || entry?.time !== formatTime(leaf.at)) {
    ctx.findings.add('leaf_misfiled', where, 'kind, proof_id and at as in the entry');
  }
  if (entry?.type === 'status') {
    const proof = await proofAbout(ctx.sql, entry.proof_id);
    const hasArtifact = entry.artifact_kind === 'proof' || (proof !== null && !isProofOnly(proof));
    if (proof === null && hasDamagedLeaf) {
      ctx.findings.unchecked('revocations of unknown proofs: a damaged leaf may be their proof');
    } else if (proof === null || proof.leafIndex >= leaf.leafIndex || !hasArtifact) {
      const expected = `a ${entry.artifact_kind} of ${entry.proof_id} at an earlier leaf`;
      ctx.findings.add('revocation_unknown_proof', where, expected);
    }
    await checkReason(ctx, entry, leaf.leafIndex);
  }
  return isFiled;
}

async function checkReason(
  { sql, findings }: RegistryContext,
  entry: StatusEntry,
  leafIndex: number,
): Promise<void> {
  const where = `svc.revocation_reason reason_hash=${entry.reason_hash}`;
  const document = await reasonDocument(sql, entry.reason_hash, entry.proof_id, leafIndex);
  if (document === 'gone') return;
  if (document === null) {
    const expected = `the reason why ${entry.proof_id} was revoked`;
    findings.add('revocation_reason_missing', where, expected);
  } else if (!isReasonOf(nativeSha256, document, entry)) {
    findings.add('revocation_reason_altered', where, 'the document with the hash in the log');
  }
}
