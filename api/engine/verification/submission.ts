import { aepBytes, buildProofRecord, requestTypeOf, proofRecordHash } from '#protocol/aep';
import { equalBytes, fromBase64, toBase64Url, toHex } from '#protocol/bytes';
import { canonicalize } from '#protocol/canonical-json';
import { parseEnvelope, type OpenEnvelope } from '#protocol/dsse';
import { hashHex } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { openNote } from '#protocol/note';
import type { Aep, DsseEnvelope, ProofRecord } from '#protocol/schemas/aep';
import type { InclusionProof, ProofExport, VerifyBody } from '#protocol/schemas/proof-export';
import type { VerdictStatement, VerifyCheck } from '#protocol/schemas/verdict';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { StoredCheckpoint } from '#sql/log/checkpoints';
import type { StoredProof } from '#sql/proofs/read';
import { passOr } from './verify-checks.js';

/** Evidence submitted for verification. */
export interface Submission {
  proofId: string;
  /** Null when only the id was sent. */
  signed: { aep: Aep; envelope: DsseEnvelope; open: OpenEnvelope } | null;
  /** Null unless a complete export was submitted. */
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

/** The registry's own record of the proof, for comparison. */
export interface Registered {
  stored: StoredProof;
  /** The canonical log entry. */
  entry: Uint8Array;
  /** From the log; null if the log has no such key. */
  publicKey: Uint8Array | null;
  /** Every statement that the registry can have made about the proof. */
  statements: VerdictStatement[];
  /** The signed checkpoint of the submitted tree size, or null. */
  checkpoint: StoredCheckpoint | null;
  /** The log key that an export with that checkpoint names now. */
  logVkey: string | null;
}

/** Compares each part of a submission with the registry. The log's commitments decide what is genuine. */
export function submittedChecks(submission: Submission, registered: Registered): VerifyCheck[] {
  const { signed, exported } = submission;
  const record = signed === null ? null : rebuilt(signed, registered.stored);
  const ifSigned = (name: VerifyCheck['name'], passed: () => boolean, otherwise: string) =>
    signed === null ? notSubmitted(name) : passOr(name, passed(), otherwise);
  const ifExported = (
    name: VerifyCheck['name'],
    passed: (document: ProofExport) => boolean,
    otherwise: string,
  ) => (exported === null ? notSubmitted(name) : passOr(name, passed(exported), otherwise));
  const { stored, entry } = registered;
  return [
    ifSigned(
      'submitted_aep',
      () =>
        signed !== null &&
        equalBytes(aepBytes(signed.aep), signed.open.payload) &&
        hashHex(nativeSha256, signed.open.payload) === toHex(stored.aepHash),
      'the AEP is not the one that was logged',
    ),
    ifSigned(
      'submitted_envelope',
      () => record !== null && same(signed?.envelope, record.envelope) && isLogged(record, stored),
      'the envelope is not the one that was logged',
    ),
    ifExported(
      'submitted_record',
      (document) =>
        record !== null &&
        isLogged(record, stored) &&
        same(document.proof_record, record) &&
        document.request_hash === record.request_hash &&
        document.response_hash === record.response_hash,
      'the proof record, or a hash beside it, is not what was logged',
    ),
    ifExported(
      'submitted_entry',
      (document) => canonicalize(document.entry) === new TextDecoder().decode(entry),
      'the log entry is not the one in the log',
    ),
    ifExported(
      'submitted_inclusion',
      (document) => isIncluded(document.inclusion, registered),
      'this log did not sign the checkpoint, or the path does not connect the leaf to its root',
    ),
    ifExported(
      'submitted_keys',
      (document) => areKeys(document, registered),
      'a key differs from the one in the log, or from the one that signed the checkpoint',
    ),
    ifExported(
      'submitted_verdict',
      (document) => registered.statements.some((statement) => same(statement, document.verdict)),
      'the registry never made this statement',
    ),
  ];
}

function notSubmitted(name: VerifyCheck['name']): VerifyCheck {
  return { name, result: 'not_applicable', detail: 'not part of the submission' };
}

/** The proof record derived from the submitted AEP and signature. */
function rebuilt(signed: NonNullable<Submission['signed']>, stored: StoredProof): ProofRecord {
  const { aep, open } = signed;
  return buildProofRecord(nativeSha256, {
    proof_id: stored.proofId,
    aep: open.payload,
    signature: open.signature,
    key_id: aep.key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: requestTypeOf(aep.subject),
  });
}

function isLogged(record: ProofRecord, stored: StoredProof): boolean {
  return proofRecordHash(nativeSha256, record) === toHex(stored.proofRecordHash);
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

function areKeys(document: ProofExport, { publicKey, logVkey }: Registered): boolean {
  const [key] = document.keys;
  return (
    publicKey !== null &&
    key.key_id === document.aep.key_id &&
    key.public_key === toBase64Url(publicKey) &&
    (document.log_vkey === logVkey || signedBy(document.inclusion.checkpoint, document.log_vkey))
  );
}

/** An export may name a log key that was rotated since: accept the key that signed its checkpoint. */
function signedBy(note: string, vkey: string | null): boolean {
  if (vkey === null) return false;
  try {
    openNote(note, [vkey], nativeVerify);
    return true;
  } catch {
    return false;
  }
}

function same(a: unknown, b: unknown): boolean {
  return canonicalize(a as JsonValue) === canonicalize(b as JsonValue);
}
