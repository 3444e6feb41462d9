import { aepBytes, buildProofRecord, requestTypeOf, proofRecordHash } from '#protocol/aep';
import { equalBytes, fromBase64, toBase64Url, toHex } from '#protocol/bytes';
import { canonicalize } from '#protocol/canonical-json';
import { parseEnvelope, type OpenEnvelope } from '#protocol/dsse';
import { hashHex } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { openNote } from '#protocol/note';
import type { Aep } from '#protocol/schemas/aep';
import type { InclusionProof } from '#protocol/schemas/inclusion';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { DsseEnvelope, ProofRecord } from '#protocol/schemas/proof-record';
import type { VerdictStatement, VerifyCheck } from '#protocol/schemas/verdict';
import type { VerifyBody } from '#protocol/schemas/verify-request';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { StoredCheckpoint } from '#sql/log/checkpoints';
import type { StoredProof } from '#sql/proofs/read';
import { passOr } from './verify-checks.js';

/** What somebody sent in to be verified. */
export interface Submission {
  proofId: string;
  /** Null when only the id was sent. */
  signed: { aep: Aep; envelope: DsseEnvelope; open: OpenEnvelope } | null;
  /** The rest of it, when it is a whole export. */
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

/** What the registry has to hold a submission against. */
export interface Registered {
  stored: StoredProof;
  /** The canonical log entry. */
  entry: Uint8Array;
  /** As the log has it; null when the log knows no such key. */
  publicKey: Uint8Array | null;
  /** Every statement that the registry could ever have made of it. */
  statements: VerdictStatement[];
  /** The checkpoint that was signed for the tree size that is submitted, if any was. */
  checkpoint: StoredCheckpoint | null;
  /** What an export with that checkpoint names now. */
  logVkey: string | null;
}

/**
 * Holds each part of a submission against what the registry itself would say. The log's commitments
 * decide what is genuine: a part is, or it differs; how it differs does not matter.
 */
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
      'the checkpoint was not signed like that, or the path does not lead to it from this leaf',
    ),
    ifExported(
      'submitted_keys',
      (document) => areKeys(document, registered),
      'a key is not the one that the log has, or not the one that signed the checkpoint',
    ),
    ifExported(
      'submitted_verdict',
      (document) => registered.statements.some((statement) => same(statement, document.verdict)),
      'the registry never made this statement',
    ),
  ];
}

function notSubmitted(name: VerifyCheck['name']): VerifyCheck {
  return { name, result: 'not_applicable', detail: 'it is not part of the submission' };
}

/** The record that a submitted AEP and signature would have in the log. */
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

/** An export may name a log key that has been replaced since: it is the one that signed its checkpoint. */
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
