import { toHex } from '#protocol/bytes';
import { readEntry, parseRevocationReason } from '#protocol/entries';
import type { VerdictInHistory } from '#protocol/history';
import type { Aep } from '#protocol/schemas/aep';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import type { CheckName } from '#protocol/schemas/verdict';
import { ARTIFACT_KINDS, type ArtifactKind, type Decided, isProofOnly } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { examineProof } from '#protocol/verify';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { StoredLeaf } from '#sql/fsck/log';
import { proofAbout, reasonDocument } from '#sql/fsck/lifecycle';
import { columnsUnlikeAep, failing, filedEntry } from '#sql/log/leaf-checks';
import type { FindingCode } from '../findings.js';
import type { RegistryContext, KeyHistory } from './context.js';

/** The registry's result for a proof, for comparison with its published data. */
export interface LeafCheckResult {
  leafIndex: number;
  proofId: string;
  /** Whether the proof verifies; null when unknown. */
  verifies: boolean | null;
  /** The proof fails only because its key is compromised. */
  isVoided: boolean;
  /** The decision in the AEP; null when the AEP is damaged. */
  decision: (Decided & { environment: 'sandbox' | 'live'; keyId: string }) | null;
  /** The expiries of the artifacts from the AEP, in epoch milliseconds. */
  ends: readonly { kind: ArtifactKind; expiresAt: number }[];
  /** Every verdict that covers the leaf, the effective one last. */
  verdicts: readonly VerdictInHistory[];
}

/** The proofs of a chunk, by leaf index. */
export type ChunkCheckResult = ReadonlyMap<number, LeafCheckResult>;

const crypto = { sha256: nativeSha256, verify: nativeVerify };

/** A root cause; findings that only follow from it are not reported. */
export interface Fault {
  code: FindingCode;
  table: 'proof' | 'intake';
  expected: string;
}

export interface ProofCheckResult {
  /** Whether the proof verifies; null when the key history lacks its key. */
  verifies: boolean | null;
  /** Null when the stored bytes do not match the hash in the log. */
  aep: Aep | null;
  faults: Fault[];
}

/**
 * Derives a proof from its rows, down to its leaf hash.
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
  const { proof, intake, filedUnder, leafIndex } = leaf;
  const faults: Fault[] = [];
  const fault = (code: FindingCode, expected: string, table: Fault['table'] = 'proof'): void => {
    faults.push({ code, table, expected });
  };
  if (proof === null || filedUnder === null) {
    fault('proof_missing', 'a row for the proof at this leaf');
    return { verifies: false, aep: null, faults };
  }
  if (proof.leafIndex !== leafIndex) {
    fault('proof_misplaced', `leaf_index ${leafIndex}, found ${proof.leafIndex}`);
  }
  if (intake === null) fault('intake_missing', 'the intake row of the proof', 'intake');
  // An erased proof cannot be derived again, so its verdict decides what may be published.
  if (leaf.isErased) {
    const left = payloadLeft(leaf).join(', ');
    if (left !== '') fault('erasure_incomplete', `no payload after its erasure, found ${left}`);
    return { verifies: null, aep: null, faults };
  }
  const { aep: bytes, signature } = proof;
  if (bytes === null || signature === null) {
    const missing = 'its AEP and signature';
    return fails({ code: 'proof_payload_missing', table: 'proof', expected: missing });
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
  // A damaged log row is reported elsewhere; findings that follow from it are omitted.
  if (!isEntryRight)
    return { verifies: false, aep: failed.has('signature') ? null : aep, faults: [] };
  const altered = alteration(failed);
  if (altered !== null) return fails(altered);
  const isKeyUnknown = failed.has('signing_key') && key.state === 'unknown';
  // A compromised key is not damage: the log records it, and the proof is not reported as valid.
  if (failed.has('signing_key') && !isKeyUnknown && key.state !== 'compromised') {
    const expected = `a key that is active at this leaf; ${proof.keyId} is ${key.state}`;
    fault('key_not_active', expected);
  }
  const isUnsigned = failed.has('signature') && key.publicKey !== null;
  if (isUnsigned) fault('signature_invalid', `a signature of the AEP by ${proof.keyId}`);
  else if (failed.has('proof_record_hash')) {
    fault('proof_record_differs', 'a proof record with the hash in the log entry');
  }
  if (failed.has('request_hash')) {
    const expected = `a request of hash ${aep?.request_hash ?? ''}, as the AEP has it`;
    fault('request_altered', expected, 'intake');
  }
  // Columns are published, listed and queried, so they must match the AEP.
  const columns = aep === null ? [] : columnsUnlikeAep(columnsOf(proof, intake), aep);
  if (columns.length > 0) fault('columns_differ', `${columns.join(', ')} as in the AEP`);
  const pinned = intake === null || aep === null ? [] : pinsUnlikeAep(intake, aep);
  if (pinned.length > 0) {
    fault('intake_differs', `${pinned.join(', ')} as in the AEP`, 'intake');
  }
  const isProofWrong =
    (failed.has('signing_key') && !isKeyUnknown) ||
    isUnsigned ||
    failed.has('proof_record_hash') ||
    failed.has('request_hash') ||
    columns.length > 0;
  return { verifies: isProofWrong ? false : isKeyUnknown ? null : true, aep, faults };
}

const fails = (fault: Fault): ProofCheckResult => ({
  verifies: false,
  aep: null,
  faults: [fault],
});

/** The columns of an erased payload that still have a value. */
function payloadLeft({ proof, intake }: StoredLeaf): string[] {
  const { aep, signature, action, intentId: intent_id } = proof ?? {};
  const { request, requestHash: request_hash, salt } = intake ?? {};
  const payload = { aep, signature, action, intent_id, request, request_hash, salt };
  return Object.entries(payload).flatMap(([name, value]) => ((value ?? null) === null ? [] : name));
}

/** The finding for an AEP that differs from the hash in the log entry. */
function alteration(failed: ReadonlySet<CheckName>): Fault | null {
  if (failed.has('aep_hash')) {
    const expected = 'an AEP with the hash in the log entry';
    return { code: 'aep_altered', table: 'proof', expected };
  }
  const malformed = (['aep_schema', 'aep_canonical', 'aep_identity'] as const).find((name) =>
    failed.has(name),
  );
  if (malformed === undefined) return null;
  return {
    code: 'aep_invalid',
    table: 'proof',
    expected: `an AEP that passes the check ${malformed}`,
  };
}

/** Tenant and request type are null where the intake row disagrees. */
function columnsOf(proof: NonNullable<StoredLeaf['proof']>, intake: StoredLeaf['intake']) {
  const { tenantNo, lane } = intake ?? proof;
  return {
    ...proof,
    tenantId: tenantNo === proof.tenantNo ? proof.tenantId : null,
    lane: lane === proof.lane ? lane : null,
  };
}

/** The pinned columns of the intake row that differ from the signed AEP. */
function pinsUnlikeAep(intake: NonNullable<StoredLeaf['intake']>, aep: Aep): string[] {
  return failing({
    request: intake.request !== null,
    request_hash: intake.requestHash !== null && toHex(intake.requestHash) === aep.request_hash,
    accepted_at: formatTime(intake.acceptedAt) === aep.accepted_at,
    salt: intake.salt !== null && toHex(intake.salt) === aep.salt,
    policy_digest: toHex(intake.policyDigest) === aep.policy.digest,
    fixture_hash: (intake.fixtureHash?.toString('hex') ?? null) === aep.evidence.fixture_hash,
    environment: intake.environment === aep.environment,
    validity: ARTIFACT_KINDS.every((kind) => {
      const until = (aep.valid_until as Partial<Record<ArtifactKind, string | null>>)[kind];
      // The AEP of a denial has no expiry of certificate, passport or trust.
      if (until === undefined) return true;
      const seconds = intake.validity[kind];
      return until === (seconds === null ? null : formatTime(intake.acceptedAt + seconds * 1000));
    }),
  });
}

/** Whether a log row is a proof with consistent rows, regardless of the tree. */
export function isConsistent(leaf: StoredLeaf, keys: KeyHistory, ownHash: Uint8Array): boolean {
  // Without a payload, the row of an erased proof cannot be checked.
  if (leaf.kind !== 'proof' || leaf.isErased) return false;
  const { verifies, faults } = checkProof(leaf, keys, ownHash, true);
  return verifies !== false && faults.length === 0;
}

/**
 * Checks a status or key leaf whose bytes match the log. Returns whether its columns match its entry,
 * as the verifier requires.
 */
export async function checkOtherLeaf(ctx: RegistryContext, leaf: StoredLeaf): Promise<boolean> {
  const where = `svc.log_entry leaf_index=${leaf.leafIndex}`;
  const isFiled = filedEntry(leaf) !== null;
  const entry = readEntry(leaf.entry);
  if (!isFiled || entry?.time !== formatTime(leaf.at)) {
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
  return isFiled;
}

async function checkReason({ sql, findings }: RegistryContext, entry: StatusEntry): Promise<void> {
  const where = `svc.revocation_reason reason_hash=${entry.reason_hash}`;
  const document = await reasonDocument(sql, entry.reason_hash, entry.proof_id);
  if (document === 'erased') return;
  if (document === null) {
    const expected = `the reason why ${entry.proof_id} was revoked`;
    findings.add('revocation_reason_missing', where, expected);
  } else if (toHex(nativeSha256(document)) !== entry.reason_hash || !isAbout(document, entry)) {
    findings.add('revocation_reason_altered', where, 'the document with the hash in the log');
  }
}

function isAbout(document: Uint8Array, entry: StatusEntry): boolean {
  const reason = readReason(document);
  return reason?.proof_id === entry.proof_id && reason.artifact_kind === entry.artifact_kind;
}

/** Parses a reason document; null when it is damaged. */
export function readReason(document: Uint8Array) {
  try {
    return parseRevocationReason(document);
  } catch {
    return null;
  }
}
