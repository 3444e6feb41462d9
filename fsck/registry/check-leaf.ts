import { requestTypeOf } from '#protocol/aep';
import { toHex } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import type { VerdictInHistory } from '#protocol/history';
import { parseRevocationReason } from '#protocol/revocation-reason';
import type { Aep } from '#protocol/schemas/aep';
import type { LogEntry } from '#protocol/schemas/log-entry';
import type { CheckName } from '#protocol/schemas/verdict';
import { ARTIFACT_KINDS, type ArtifactKind, type Decided, isProofOnly } from '#protocol/status';
import { formatTime, parseTime } from '#protocol/time';
import { examineProof } from '#protocol/verify';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { StoredLeaf } from '#sql/fsck/leaves';
import { proofAbout, reasonDocument } from '#sql/fsck/revocations';
import type { FindingCode } from '../codes.js';
import type { RegistryContext } from './context.js';
import type { KeyHistory } from './keys.js';

/** The registry's result for a proof, for comparison with its published data. */
export interface LeafCheckResult {
  leafIndex: number;
  proofId: string;
  /** Whether it verifies; null when unknown. */
  verifies: boolean | null;
  /** It fails only because its key is compromised. */
  isVoided: boolean;
  /** The decision in its AEP; null when the AEP is damaged. */
  said: (Decided & { environment: 'sandbox' | 'live'; keyId: string }) | null;
  /** The expiries of its artifacts from the AEP, in epoch milliseconds. */
  ends: readonly { kind: ArtifactKind; expiresAt: number }[];
  /** Every verdict that covers it, the effective one last. */
  verdicts: readonly VerdictInHistory[];
}

/** The proofs of a chunk, by leaf index. */
export type ChunkCheckResult = ReadonlyMap<number, LeafCheckResult>;

const crypto = { sha256: nativeSha256, verify: nativeVerify };

/** One root cause; its consequences are not reported. */
export interface Fault {
  code: FindingCode;
  table: 'proof' | 'intake';
  expected: string;
}

export interface ProofCheckResult {
  /** Whether it verifies; null when the key history does not know its key. */
  verifies: boolean | null;
  /** Null when the bytes do not have the hash in the log. */
  aep: Aep | null;
  faults: Fault[];
}

/**
 * Derives a proof from its rows, down to its leaf hash.
 *
 * @param inTree the leaf hash in the tree
 * @param isEntryRight whether the log row has that hash
 */
export function checkProof(
  leaf: StoredLeaf,
  keys: KeyHistory,
  inTree: Uint8Array,
  isEntryRight: boolean,
): ProofCheckResult {
  const { proof, intake, filedUnder, leafIndex } = leaf;
  if (proof === null || filedUnder === null) {
    return fails(null, 'proof_missing', 'proof', 'a row for the proof at this leaf');
  }
  const { aep: bytes, signature } = proof;
  if (leaf.isErased) return checkErasedProof(leaf);
  if (bytes === null || signature === null) {
    return fails(null, 'proof_payload_missing', 'proof', 'its AEP and signature');
  }
  const key = keys.stateAt(proof.keyId, leafIndex);
  const { checks, aep } = examineProof(crypto, {
    proof_id: filedUnder,
    request: intake?.request ?? null,
    aep: bytes,
    signature,
    entry: leaf.entry,
    leafIndex,
    key,
    inclusion: { leafHashInTree: inTree },
  });
  const failed = new Set(checks.flatMap(({ name, result }) => (result === 'fail' ? [name] : [])));
  // A damaged log row is reported itself; what depends on it is not.
  if (!isEntryRight)
    return { verifies: false, aep: failed.has('signature') ? null : aep, faults: [] };
  const altered = alteration(failed);
  if (altered !== null) return { verifies: false, aep: null, faults: [altered] };
  const faults: Fault[] = [];
  let verifies: boolean | null = true;
  if (failed.has('signing_key') && key.state === 'unknown') {
    verifies = null;
  } else if (failed.has('signing_key')) {
    verifies = false;
    // A compromised key is not damage: the log records it, and the proof is not reported as valid.
    if (key.state !== 'compromised') {
      const expected = `a key that is active at this leaf; ${proof.keyId} is ${key.state}`;
      faults.push({ code: 'key_not_active', table: 'proof', expected });
    }
  }
  if (failed.has('signature') && key.publicKey !== null) {
    verifies = false;
    faults.push({
      code: 'signature_invalid',
      table: 'proof',
      expected: `a signature of the AEP by ${proof.keyId}`,
    });
  } else if (failed.has('proof_record_hash')) {
    verifies = false;
    const expected = 'a proof record with the hash in the log entry';
    faults.push({ code: 'proof_record_differs', table: 'proof', expected });
  }
  if (failed.has('request_hash')) {
    verifies = false;
    const expected = `a request of hash ${aep?.request_hash ?? ''}, as the AEP has it`;
    faults.push({ code: 'request_altered', table: 'intake', expected });
  }
  const columns = columnFault(leaf, aep);
  if (columns !== null) {
    verifies = false;
    faults.push(columns);
  }
  if (proof.leafIndex !== leafIndex) {
    const expected = `leaf_index ${String(leafIndex)}, found ${String(proof.leafIndex)}`;
    faults.push({ code: 'proof_misplaced', table: 'proof', expected });
  }
  faults.push(...intakeFaults(leaf, aep));
  return { verifies, aep, faults };
}

/** An erased proof cannot be derived again, so its verdict decides what may be published. */
function checkErasedProof({ leafIndex, proof, intake }: StoredLeaf): ProofCheckResult {
  const { aep, signature, action, intentId } = proof ?? {};
  const { request, requestHash, salt } = intake ?? {};
  const payload = {
    aep,
    signature,
    action,
    intent_id: intentId,
    request,
    request_hash: requestHash,
    salt,
  };
  const left = Object.entries(payload).flatMap(([name, value]) =>
    value === null || value === undefined ? [] : [name],
  );
  const faults: Fault[] = [];
  if (left.length > 0) {
    const expected = `nothing of an erased payload, found ${left.join(', ')}`;
    faults.push({ code: 'erasure_incomplete', table: 'proof', expected });
  }
  if (intake === null) {
    faults.push({
      code: 'intake_missing',
      table: 'intake',
      expected: 'the intake row of the proof',
    });
  }
  if (proof !== null && proof.leafIndex !== leafIndex) {
    const expected = `leaf_index ${String(leafIndex)}, found ${String(proof.leafIndex)}`;
    faults.push({ code: 'proof_misplaced', table: 'proof', expected });
  }
  return { verifies: null, aep: null, faults };
}

function fails(
  aep: Aep | null,
  code: FindingCode,
  table: Fault['table'],
  expected: string,
): ProofCheckResult {
  return { verifies: false, aep, faults: [{ code, table, expected }] };
}

/** The finding for an AEP that differs from the hash in the log entry. */
function alteration(failed: ReadonlySet<CheckName>): Fault | null {
  if (failed.has('aep_hash')) {
    return {
      code: 'aep_altered',
      table: 'proof',
      expected: 'an AEP with the hash in the log entry',
    };
  }
  const malformed = (['aep_schema', 'aep_canonical', 'aep_identity'] as const).find((name) =>
    failed.has(name),
  );
  if (malformed === undefined) return null;
  return { code: 'aep_invalid', table: 'proof', expected: `an AEP that passes ${malformed}` };
}

/** Columns are published, listed and queried, so they must match the AEP. */
function columnFault({ proof, intake }: StoredLeaf, aep: Aep | null): Fault | null {
  if (proof === null || aep === null) return null;
  const { subject } = aep;
  const wrong = Object.entries({
    effect: proof.effect === aep.decision.effect,
    environment: proof.environment === aep.environment,
    key_id: proof.keyId === aep.key_id,
    tenant_no:
      proof.tenantId === aep.tenant_id && (intake?.tenantNo ?? proof.tenantNo) === proof.tenantNo,
    lane:
      proof.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2) &&
      (intake?.lane ?? proof.lane) === proof.lane,
    is_outcome: proof.isOutcome === (subject.kind === 'outcome'),
    action: proof.action === ('action' in subject ? subject.action : null),
    intent_id: proof.intentId === ('intent_id' in subject ? subject.intent_id : null),
  }).flatMap(([column, holds]) => (holds ? [] : [column]));
  if (wrong.length === 0) return null;
  const expected = `${wrong.join(', ')} as in the AEP`;
  return { code: 'columns_differ', table: 'proof', expected };
}

/** The pinned columns of the intake row must match the signed AEP. */
function intakeFaults({ intake }: StoredLeaf, aep: Aep | null): Fault[] {
  if (intake === null) {
    return [{ code: 'intake_missing', table: 'intake', expected: 'the intake row of the proof' }];
  }
  if (aep === null) return [];
  const wrong = Object.entries({
    request: intake.request !== null,
    request_hash: intake.requestHash !== null && toHex(intake.requestHash) === aep.request_hash,
    accepted_at: formatTime(intake.acceptedAt) === aep.accepted_at,
    salt: intake.salt !== null && toHex(intake.salt) === aep.salt,
    policy_digest: toHex(intake.policyDigest) === aep.policy.digest,
    fixture_hash: (intake.fixtureHash?.toString('hex') ?? null) === aep.evidence.fixture_hash,
    environment: intake.environment === aep.environment,
    validity: ARTIFACT_KINDS.every((kind) => {
      const until = (aep.valid_until as Partial<Record<ArtifactKind, string | null>>)[kind];
      // A denial has no certificate, passport or trust.
      if (until === undefined) return true;
      const seconds = intake.validity[kind];
      return until === (seconds === null ? null : formatTime(intake.acceptedAt + seconds * 1000));
    }),
  }).flatMap(([column, holds]) => (holds ? [] : [column]));
  if (wrong.length === 0) return [];
  return [
    {
      code: 'intake_differs',
      table: 'intake',
      expected: `${wrong.join(', ')} as in the AEP`,
    },
  ];
}

/** The expiries of a proof's artifacts from its signed AEP, in epoch milliseconds. */
export function expiriesOf(aep: Aep): { kind: ArtifactKind; expiresAt: number }[] {
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.flatMap((kind) => {
    const end = ends[kind];
    return end === undefined || end === null ? [] : [{ kind, expiresAt: parseTime(end) }];
  });
}

/** Whether a log row is a proof whose rows are consistent, whatever the tree has. */
export function isSoundAlone(leaf: StoredLeaf, keys: KeyHistory, ownHash: Uint8Array): boolean {
  // An erased proof has no payload to check its row against.
  if (leaf.kind !== 'proof' || leaf.isErased) return false;
  const { verifies, faults } = checkProof(leaf, keys, ownHash, true);
  return verifies !== false && faults.length === 0;
}

/**
 * Checks a status or key leaf whose bytes match the log. Returns whether its columns match its entry,
 * as the verifier requires.
 */
export async function checkOtherLeaf(ctx: RegistryContext, leaf: StoredLeaf): Promise<boolean> {
  const where = `svc.log_entry leaf_index=${String(leaf.leafIndex)}`;
  const entry = readEntry(leaf.entry);
  const about = entry?.type === 'status' ? entry.proof_id : null;
  const fits =
    entry !== null &&
    entry.type === leaf.kind &&
    about === leaf.filedUnder &&
    entry.time === formatTime(leaf.at);
  if (!fits) {
    ctx.findings.add('leaf_misfiled', where, 'kind, proof_id and at as in the entry');
  }
  if (entry?.type === 'status') {
    const proof = await proofAbout(ctx.sql, entry.proof_id);
    const hasArtifact = entry.artifact_kind === 'proof' || (proof !== null && !isProofOnly(proof));
    if (proof === null || proof.leafIndex >= leaf.leafIndex || !hasArtifact) {
      const expected = `a ${entry.artifact_kind} of ${entry.proof_id} at an earlier leaf`;
      ctx.findings.add('revocation_unknown_proof', where, expected);
    }
    await checkReason(ctx, entry);
  }
  return (
    entry !== null &&
    entry.type === leaf.kind &&
    entry.type !== 'proof' &&
    about === leaf.filedUnder
  );
}

async function checkReason(
  { sql, findings }: RegistryContext,
  entry: LogEntry & { type: 'status' },
): Promise<void> {
  const where = `svc.revocation_reason reason_hash=${entry.reason_hash}`;
  const document = await reasonDocument(sql, entry.reason_hash, entry.proof_id);
  if (document === 'erased') return;
  if (document === null) {
    findings.add(
      'revocation_reason_missing',
      where,
      `the reason why ${entry.proof_id} was revoked`,
    );
    return;
  }
  const isHashed = toHex(nativeSha256(document)) === entry.reason_hash;
  if (!isHashed || !speaksOf(document, entry)) {
    findings.add('revocation_reason_altered', where, 'the document with the hash in the log');
  }
}

function speaksOf(document: Uint8Array, entry: LogEntry & { type: 'status' }): boolean {
  try {
    const reason = parseRevocationReason(document);
    return reason.proof_id === entry.proof_id && reason.artifact_kind === entry.artifact_kind;
  } catch {
    return false;
  }
}
