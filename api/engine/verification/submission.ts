import { aepBytes, buildProofRecord, proofRecordHash } from '#protocol/aep';
import { equalBytes, fromBase64, toHex } from '#protocol/bytes';
import { firstUncommitted } from '#protocol/commitments';
import { attempt } from '#protocol/errors';
import { canonicalBytes, canonicalize, type JsonValue } from '#protocol/json';
import type { KeyedEntry } from '#protocol/keys';
import { parseEnvelope, type OpenEnvelope } from '#protocol/dsse';
import { hashHex } from '#protocol/hash';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { openNote } from '#protocol/note';
import type { Aep, DsseEnvelope, ProofRecord } from '#protocol/schemas/aep';
import type { InclusionProof, ProofExport, VerifyBody } from '#protocol/schemas/proof-export';
import {
  type VerdictStatement,
  type VerifyCheck,
  VERIFY_CHECK_NAMES,
  type Verdict,
  type VerdictCause,
  type VerdictKey,
} from '#protocol/schemas/verdict';
import { parseTlogProof } from '#protocol/checkpoint';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { StoredCheckpoint } from '#sql/log/log';
import type { StoredProof, ProofHistory } from '#sql/proofs/read';
import type { VerificationStatus } from '#protocol/status';

export interface Submission {
  proofId: string;
  /** The submitted AEP and envelope; null when the submission is only a proof id. */
  signed: { aep: Aep; envelope: DsseEnvelope; open: OpenEnvelope } | null;
  /** The submitted export; null for any other submission. */
  exported: ProofExport | null;
}

export function submissionOf(body: VerifyBody): Submission {
  if ('inclusion' in body) {
    return { proofId: body.proof_id, signed: signedOf(body.aep, body.envelope), exported: body };
  }
  const { proof_id, aep, envelope } = body;
  if (aep === undefined || envelope === undefined) {
    return { proofId: proof_id ?? '', signed: null, exported: null };
  }
  return { proofId: aep.proof_id, signed: signedOf(aep, envelope), exported: null };
}

function signedOf(aep: Aep, envelope: DsseEnvelope): Submission['signed'] {
  return { aep, envelope, open: parseEnvelope(envelope) };
}

export interface Registered {
  stored: StoredProof;
  entry: Uint8Array;
  /** The entry that activated the proof's AEP key; null if the log has no such entry. */
  activation: KeyedEntry | null;
  /** The entry that activated the approver's registration; null without a second decision. */
  approverActivation: KeyedEntry | null;
  /** Every statement that the registry can have made about the proof. */
  statements: VerdictStatement[];
  checkpoint: StoredCheckpoint | null;
  /** The log key that a new export with the submitted checkpoint would name. */
  logVkey: string | null;
}

/** Compares each part of a submission with the registry. The log's commitments decide what is genuine. */
export function submittedChecks(submission: Submission, registered: Registered): VerifyCheck[] {
  const { signed, exported } = submission;
  const { stored, entry } = registered;
  const record = signed && rebuilt(signed, stored);
  const isRecordLogged =
    record !== null && proofRecordHash(nativeSha256, record) === toHex(stored.proofRecordHash);
  const compared: [name: VerifyCheck['name'], passed: boolean | null, otherwise: string][] = [
    [
      'submitted_aep',
      signed &&
        equalBytes(aepBytes(signed.aep), signed.open.payload) &&
        hashHex(nativeSha256, signed.open.payload) === toHex(stored.aepHash),
      'the AEP is not the one that was logged',
    ],
    [
      'submitted_envelope',
      signed && isRecordLogged && same(signed.envelope, record.envelope),
      'the envelope is not the one that was logged',
    ],
    [
      'submitted_record',
      exported && isRecordLogged && same(exported.proof_record, record),
      'the proof record differs from the logged one',
    ],
    [
      'submitted_disclosures',
      exported && firstUncommitted(nativeSha256, exported.aep, exported.disclosures) === -1,
      'the AEP does not commit to a disclosed value',
    ],
    [
      'submitted_entry',
      exported && canonicalize(exported.entry) === new TextDecoder().decode(entry),
      'the submitted entry differs from the one that the log has for this proof',
    ],
    [
      'submitted_inclusion',
      exported && isIncluded(exported.inclusion, registered),
      'this log did not sign the checkpoint, or the path does not connect the leaf to its root',
    ],
    [
      'submitted_keys',
      exported && areKeys(exported, registered),
      'a key differs from the one in the log, or from the one that signed the checkpoint',
    ],
    [
      'submitted_approval',
      exported && isApprovalOf(exported, registered),
      'the approval differs from the stored one, or its registration from the one in the log',
    ],
    [
      'submitted_verdict',
      exported && registered.statements.some((statement) => same(statement, exported.verdict)),
      'the registry never stated the submitted verdict',
    ],
  ];
  return compared.map(([name, passed, otherwise]) =>
    passed === null
      ? { name, result: 'not_applicable', detail: 'not part of the submission' }
      : passOr(name, passed, otherwise),
  );
}

function rebuilt(signed: NonNullable<Submission['signed']>, stored: StoredProof): ProofRecord {
  const { aep, open } = signed;
  return buildProofRecord(nativeSha256, {
    proof_id: stored.proofId,
    aep: open.payload,
    signature: open.signature,
    key_id: aep.key_id,
  });
}

function isIncluded(inclusion: InclusionProof, { stored, entry, checkpoint }: Registered): boolean {
  return (
    checkpoint !== null &&
    inclusion.leaf_index === stored.leafIndex &&
    inclusion.tree_size === checkpoint.treeSize &&
    inclusion.checkpoint === checkpoint.note &&
    verifyInclusion(nativeSha256, {
      index: stored.leafIndex,
      size: checkpoint.treeSize,
      leafHash: leafHash(nativeSha256, entry),
      path: inclusion.path.map(fromBase64),
      root: checkpoint.root,
    })
  );
}

function areKeys(document: ProofExport, registered: Registered): boolean {
  const { activation, checkpoint, logVkey } = registered;
  const { entry, tlog_proof: text } = document.key;
  return (
    activation !== null &&
    same(entry, activation.entry) &&
    (text === null || isTlogProofOf(text, activation, checkpoint)) &&
    (document.log_vkey === logVkey || signedBy(document.inclusion.checkpoint, document.log_vkey))
  );
}

function isApprovalOf({ approval }: ProofExport, registered: Registered): boolean {
  const { approverActivation: activation, checkpoint, stored } = registered;
  const logged = stored.approval?.stored;
  if (approval === null || logged === undefined) return approval === null && logged === undefined;
  const { entry, envelope, registration, tlog_proof: text } = approval;
  return (
    activation !== null &&
    same(entry, activation.entry) &&
    same([envelope, registration], [logged.envelope, logged.registration]) &&
    (text === null || isTlogProofOf(text, activation, checkpoint))
  );
}

/** Whether the text is a tlog-proof of the entry under the checkpoint of the export. */
function isTlogProofOf(
  text: string,
  { entry, leafIndex: index }: KeyedEntry,
  checkpoint: StoredCheckpoint | null,
): boolean {
  const proof = attempt(() => parseTlogProof(text));
  if (proof === undefined || checkpoint === null || proof.checkpoint !== checkpoint.note)
    return false;
  const { treeSize: size, root } = checkpoint;
  const hash = leafHash(nativeSha256, canonicalBytes(entry));
  return (
    proof.index === index &&
    verifyInclusion(nativeSha256, { index, size, leafHash: hash, path: proof.path, root })
  );
}

/** Accepts the log key that signed the checkpoint, even if it was rotated since the export. */
function signedBy(note: string, vkey: string | null): boolean {
  return vkey !== null && attempt(() => openNote(note, [vkey], nativeVerify)) !== undefined;
}

function same(a: unknown, b: unknown): boolean {
  return canonicalize(a as JsonValue) === canonicalize(b as JsonValue);
}

export function passOr(name: VerifyCheck['name'], passed: boolean, otherwise: string): VerifyCheck {
  return passed ? { name, result: 'pass' } : { name, result: 'fail', detail: otherwise };
}

/** All checks in their documented order; checks not made are not_applicable, with the reason. */
export function completed(made: readonly VerifyCheck[], whyNot: string): VerifyCheck[] {
  return VERIFY_CHECK_NAMES.map((name) => {
    const missing = { name, result: 'not_applicable', detail: whyNot } as const;
    return made.find((check) => check.name === name) ?? missing;
  });
}

export function statusChecks(history: ProofHistory): VerifyCheck[] {
  const { revocations, verdicts } = history;
  const verdict = verdicts.at(-1);
  const revoked = revocations.some(({ kind }) => kind === 'proof');
  const notRevoked = passOr('not_revoked', !revoked, 'the log has a revocation of the proof');
  if (verdict === undefined) {
    const unverified = {
      result: 'not_applicable',
      detail: 'the verification system has not verified the proof yet',
    } as const;
    return [{ name: 'verdict', ...unverified }, notRevoked, { name: 'not_expired', ...unverified }];
  }
  const fault = verdictFault(history, verdict);
  return [
    passOr('verdict', fault === null, fault ?? ''),
    notRevoked,
    passOr('not_expired', !verdict.expired.includes('proof'), 'the proof has expired'),
  ];
}

function verdictFault(
  { isDamaged = false, voidedAt = null }: ProofHistory,
  { failedChecks, outcome }: ProofHistory['verdicts'][number],
): string | null {
  if (isDamaged) return 'a stored revocation differs from the log';
  if (outcome === 'erased') return 'the payload was erased: nothing is asserted';
  if (outcome !== 'pass') {
    const names = failedChecks.length > 0 ? `: ${failedChecks.join(', ')}` : '';
    return `the verification system found a fault${names}`;
  }
  return voidedAt === null ? null : 'the log records a compromise of the signing key';
}

/** The most severe cause: forgery before damage, damage before revocation and expiry. */
export function causeOf(
  checks: readonly VerifyCheck[],
  key: { state: VerdictKey['state']; smallOrder: boolean },
  isErased: boolean,
): VerdictCause | null {
  const result = new Map(checks.map((check) => [check.name, check.result]));
  const failed = (name: VerifyCheck['name']): boolean => result.get(name) === 'fail';
  if (failed('registered')) return 'not_in_registry';
  if (key.smallOrder) return 'key_small_order';
  if (key.state !== 'active') return `key_${key.state}`;
  const otherSignature = failed('submitted_envelope') && !failed('submitted_aep');
  const submittedAsLogged = ![...result].some(
    ([name, found]) => name.startsWith('submitted_') && found === 'fail',
  );
  // A signature over an AEP other than the logged AEP proves nothing about the logged AEP.
  const badSignature = failed('signature') && !failed('aep_hash');
  if (badSignature && (otherSignature || submittedAsLogged)) return 'bad_signature';
  if (!submittedAsLogged) return 'altered';
  // An erased proof can pass every check: a copy that a client kept still matches the log.
  if (isErased) return failed('not_revoked') ? 'revoked' : 'erased';
  if (result.get('verdict') === 'not_applicable') return 'not_verified_yet';
  const statusCheckNames = new Set<string>(['not_revoked', 'not_expired']);
  if (checks.some(({ name }) => failed(name) && !statusCheckNames.has(name)))
    return 'failed_verification';
  if (failed('not_revoked')) return 'revoked';
  if (failed('not_expired')) return 'expired';
  return null;
}

const PUBLIC_STATUS: Partial<Record<VerdictCause, VerificationStatus>> = {
  not_in_registry: 'NOT_FOUND',
  revoked: 'REVOKED',
  expired: 'EXPIRED',
};

/** The public status of the cause, or else INVALID, which only the engine reports. */
export function verdictStatus(
  cause: VerdictCause | null,
  statement: VerdictStatement | null,
): Verdict['status'] {
  if (cause !== null) return PUBLIC_STATUS[cause] ?? 'INVALID';
  // The status of a submission is never more positive than the registry's current statement.
  return statement?.verification_status ?? 'INVALID';
}
