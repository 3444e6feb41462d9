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

/** What the registry half found of a proof, for the half that looks at what is published of it. */
export interface LeafCheckResult {
  leafIndex: number;
  proofId: string;
  /** Whether it verifies, as found here; null when that cannot be told. */
  verifies: boolean | null;
  /** Nothing is wrong with it but that its key is compromised. */
  isVoided: boolean;
  /** What its bytes say; null when they are damaged. */
  said: (Decided & { environment: 'sandbox' | 'live'; keyId: string }) | null;
  /** When its artifacts stop asserting, by its AEP, in epoch milliseconds. */
  ends: readonly { kind: ArtifactKind; expiresAt: number }[];
  /** Every verdict that covers it, the one in force last. */
  verdicts: readonly VerdictInHistory[];
}

/** The proofs of a chunk, by leaf index. */
export type JudgedChunk = ReadonlyMap<number, LeafCheckResult>;

const crypto = { sha256: nativeSha256, verify: nativeVerify };

/** What is wrong with a proof, as one cause: what follows from it is not told again. */
export interface Fault {
  code: FindingCode;
  table: 'proof' | 'intake';
  expected: string;
}

export interface JudgedProof {
  /** Whether it verifies; null when the history of keys does not know its key. */
  verifies: boolean | null;
  /** What its bytes say; null when they are not those that the log commits to. */
  aep: Aep | null;
  faults: Fault[];
}

/**
 * Derives a proof again from its rows, down to the leaf hash that the tree holds.
 *
 * @param inTree what the tree holds at the leaf
 * @param isEntryRight whether the row of the log is what was hashed there
 */
export function judgeProof(
  leaf: StoredLeaf,
  keys: KeyHistory,
  inTree: Uint8Array,
  isEntryRight: boolean,
): JudgedProof {
  const { proof, intake, filedUnder, leafIndex } = leaf;
  if (proof === null || filedUnder === null) {
    return fails(null, 'proof_missing', 'proof', 'a row for the proof that the log has here');
  }
  const { aep: bytes, signature } = proof;
  if (leaf.isErased) return judgeErased(leaf);
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
  // Of a row of the log that is not what was hashed, nothing that hangs on it is told: it is told itself.
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
    // That a key was compromised is no damage: the log says so, and nothing asserts it.
    if (key.state !== 'compromised') {
      const expected = `a key that is active there, which ${proof.keyId} is not: ${key.state}`;
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
    const expected = 'a proof record of the hash in the log entry';
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

/** Of what was erased nothing can be derived again: its verdict decides what may be said. */
function judgeErased({ leafIndex, proof, intake }: StoredLeaf): JudgedProof {
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
      expected: 'the admission that was proved',
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
): JudgedProof {
  return { verifies: false, aep, faults: [{ code, table, expected }] };
}

/** An AEP that is not the log's: its hash is in the entry, so nothing else need be wrong. */
function alteration(failed: ReadonlySet<CheckName>): Fault | null {
  if (failed.has('aep_hash')) {
    return { code: 'aep_altered', table: 'proof', expected: 'an AEP of the hash in the log entry' };
  }
  const malformed = (['aep_schema', 'aep_canonical', 'aep_identity'] as const).find((name) =>
    failed.has(name),
  );
  if (malformed === undefined) return null;
  return { code: 'aep_invalid', table: 'proof', expected: `an AEP that passes ${malformed}` };
}

/** The columns are published, listed by and answered from: they must be what the AEP says. */
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
  const expected = `in ${wrong.join(', ')} what the AEP says`;
  return { code: 'columns_differ', table: 'proof', expected };
}

/** What was pinned when it was accepted is what was signed. */
function intakeFaults({ intake }: StoredLeaf, aep: Aep | null): Fault[] {
  if (intake === null) {
    return [{ code: 'intake_missing', table: 'intake', expected: 'the admission that was proved' }];
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
      // A denial has no certificate, passport or trust that could end.
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
      expected: `in ${wrong.join(', ')} what the AEP says`,
    },
  ];
}

/** When the artifacts of a proof stop asserting, as its signed AEP says, in epoch milliseconds. */
export function expiriesOf(aep: Aep): { kind: ArtifactKind; expiresAt: number }[] {
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.flatMap((kind) => {
    const end = ends[kind];
    return end === undefined || end === null ? [] : [{ kind, expiresAt: parseTime(end) }];
  });
}

/** Whether a row of the log is a proof's whose bytes all fit together, whatever the tree holds. */
export function isSoundAlone(leaf: StoredLeaf, keys: KeyHistory, ownHash: Uint8Array): boolean {
  // Nothing is left that would say of an erased one whether its row is right.
  if (leaf.kind !== 'proof' || leaf.isErased) return false;
  const { verifies, faults } = judgeProof(leaf, keys, ownHash, true);
  return verifies !== false && faults.length === 0;
}

/**
 * Checks a leaf that carries its own bytes, of which it is known that they are the log's. Returns
 * whether it is what its row is filed as, which is what the verifier asks of it.
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
    ctx.findings.add('leaf_misfiled', where, 'kind, proof_id and at as the entry has them');
  }
  if (entry?.type === 'status') {
    const proof = await proofAbout(ctx.sql, entry.proof_id);
    const hasArtifact = entry.artifact_kind === 'proof' || (proof !== null && !isProofOnly(proof));
    if (proof === null || proof.leafIndex >= leaf.leafIndex || !hasArtifact) {
      const expected = `a ${entry.artifact_kind} of ${entry.proof_id} before it in the log`;
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
    findings.add('revocation_reason_missing', where, `why ${entry.proof_id} was revoked`);
    return;
  }
  const isHashed = toHex(nativeSha256(document)) === entry.reason_hash;
  if (!isHashed || !speaksOf(document, entry)) {
    findings.add('revocation_reason_altered', where, 'the document whose hash is in the log');
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
