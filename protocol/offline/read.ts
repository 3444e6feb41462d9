import * as z from 'zod';
import {
  aepBytes,
  buildProofRecord,
  buildReceipt,
  requestTypeOf,
  proofRecordHash,
  type Receipt,
} from '../aep.js';
import { fromBase64, fromBase64Url, fromUtf8, isBytes, utf8, equalBytes } from '../bytes.js';
import { type Disclosure, firstUncommitted, REQUEST_HASH } from '../commitments.js';
import { parseEnvelope } from '../dsse.js';
import { memberUnlikeAep } from '../entries.js';
import { attempt } from '../errors.js';
import { documentHash, hashHex, type Sha256 } from '../hash.js';
import { parseStrict, pointerStep, canonicalize, isCanonical } from '../json.js';
import { jwkThumbprint } from '../keys.js';
import type { Aep } from '../schemas/aep.js';
import { SCHEMA } from '../schemas/ids.js';
import {
  proofExportSchema,
  type ProofExport,
  receiptEvidenceSchema,
  type ReceiptEvidence,
} from '../schemas/proof-export.js';
import { safeParse } from '../schemas/messages.js';
import { disclosedExportSchema } from '../schemas/run.js';
import { readAep } from '../verify.js';
import { faultOf, type OfflineFault, type OfflineFaultCode } from './result.js';

/** A document as text or as its UTF-8 bytes. */
export type TextOrBytes = string | Uint8Array;

/** An export, or the evidence of a receipt, which has no verdict. */
export interface SignedDocument
  extends
    Pick<ProofExport, 'aep' | 'entry' | 'envelope' | 'proof_id' | 'proof_record'>,
    Pick<ProofExport, 'approval' | 'disclosures' | 'key'>,
    Partial<Pick<ProofExport, 'inclusion' | 'verdict'>> {
  tlog_proof?: string | null;
}

export type ReadDocument = { document: SignedDocument } | { fault: OfflineFault };

/**
 * Reads an export or the evidence of a receipt, and checks that its parts fit together.
 *
 * @param receipt the receipt that the document must prove
 */
export function readSigned(value: unknown, sha256: Sha256, receipt?: Receipt): ReadDocument {
  const read = readDocument(value);
  if ('fault' in read) return read;
  const fault = findInconsistency(read.document, sha256, receipt);
  return fault === null ? read : { fault };
}

function readDocument(input: unknown): ReadDocument {
  try {
    const value = valueOf(input);
    const version = (value as { schema_version?: unknown } | null)?.schema_version;
    const parsed =
      version === SCHEMA.receiptEvidence || version === SCHEMA.disclosure
        ? safeParse(
            (version === SCHEMA.disclosure
              ? disclosedExportSchema
              : receiptEvidenceSchema
            ).transform(signedPart),
            value,
          )
        : safeParse(proofExportSchema, value);
    return parsed.success
      ? { document: parsed.data }
      : { fault: formFault(value, parsed.error.issues[0]!) };
  } catch (error) {
    return { fault: faultOf(error, 'malformed_export') };
  }
}

/** Converts receipt evidence to the form of an export, with the AEP from the envelope. */
function signedPart(
  {
    approval,
    proof_record,
    entry,
    key,
    disclosures,
    tlog_proof,
  }: Omit<ReceiptEvidence, 'schema_version'>,
  ctx: z.RefinementCtx,
): SignedDocument {
  const { envelope } = proof_record;
  const { aep, isCanonical } = readAep(parseEnvelope(envelope).payload);
  if (aep === null || !isCanonical) {
    const path = ['proof_record', 'envelope', 'payload'];
    ctx.addIssue({ code: 'custom', path, message: 'the payload is not a canonical AEP' });
    return z.NEVER;
  }
  const { proof_id } = aep;
  return { proof_id, aep, envelope, proof_record, entry, key, approval, disclosures, tlog_proof };
}

export function isText(value: unknown): value is TextOrBytes {
  return typeof value === 'string' || isBytes(value);
}

export function bytesOf(text: TextOrBytes): Uint8Array {
  return typeof text === 'string' ? utf8(text) : text;
}

/** The value of a document: parsed strictly if it is text or bytes, else as it is. */
export function valueOf(input: unknown): unknown {
  return isText(input) ? parseStrict(bytesOf(input)) : input;
}

export function textOf(text: TextOrBytes): string {
  return typeof text === 'string' ? text : fromUtf8(text);
}

const ENCODED: Record<string, (text: string) => Uint8Array> = {
  payload: fromBase64,
  sig: fromBase64,
  path: fromBase64,
  keyid: fromBase64Url,
  key_id: fromBase64Url,
  public_key: fromBase64Url,
};

function formFault(value: unknown, issue: z.core.$ZodIssue): OfflineFault {
  const pointer = issue.path.map((step) => pointerStep(String(step))).join('');
  const fault = (code: OfflineFaultCode, detail = issue.message): OfflineFault => ({
    code,
    detail,
    pointer,
  });
  const member = String(issue.path.findLast((step) => typeof step === 'string'));
  // `valid_until` has two forms, and zod may report the fault of either form.
  if (member === 'valid_until') return fault('malformed_export');
  if (issue.code === 'unrecognized_keys') return fault('unknown_member');
  if (member === 'signatures' && issue.path.at(-1) === member) return fault('not_one_signature');
  const found = issue.path.reduce<unknown>((at, step) => (at as never)?.[step], value);
  if (typeof found !== 'string') return fault('malformed_export');
  if (member === 'schema_version') return fault('wrong_schema_version');
  if (member === 'payloadType') return fault('wrong_payload_type');
  // Bad base64 in an approval is `malformed_export`: the AEP commits to an approval only by its hash. The items
  // of `path` are base64, but `path` itself is a list.
  const isOther = issue.path[0] === 'approval' || issue.path.at(-1) === 'path';
  const decode = isOther ? undefined : ENCODED[member];
  if (decode !== undefined && attempt(() => decode(found)) === undefined) {
    return fault('malformed_base64', 'not canonical base64');
  }
  return fault('malformed_export');
}

/** The first part of the document that does not follow from the other parts, or null. */
function findInconsistency(
  document: SignedDocument,
  sha256: Sha256,
  receipt: Receipt | undefined,
): OfflineFault | null {
  try {
    return (
      findEnvelopeInconsistency(document, sha256) ??
      findCommitmentInconsistency(document, sha256, receipt)
    );
  } catch (error) {
    // A lone surrogate in an already parsed value: it has no UTF-8 form, so no signature covers it.
    const { code, detail } = faultOf(error, 'malformed_export');
    return { code, detail };
  }
}

/** Compares the shown AEP with the AEP in the envelope, and the key ids of the parts. */
function findEnvelopeInconsistency(document: SignedDocument, sha256: Sha256): OfflineFault | null {
  const { aep, envelope, inclusion, key, entry, proof_id } = document;
  const { payload, keyid } = parseEnvelope(envelope);
  const at = inclusion === undefined ? '/proof_record/envelope' : '/envelope';
  return firstBroken([
    ['payload_not_canonical', `${at}/payload`, isCanonical(payload)],
    ['payload_mismatch', '/aep', equalBytes(payload, aepBytes(aep))],
    ['proof_id_mismatch', '/proof_id', proof_id === aep.proof_id],
    ['proof_id_mismatch', '/entry/proof_id', entry.proof_id === aep.proof_id],
    ['key_id_mismatch', `${at}/signatures/0/keyid`, keyid === aep.key_id],
    ['key_id_mismatch', '/key/entry', isActivationOf(key.entry, aep.key_id, sha256)],
  ]);
}

function isActivationOf(
  { change, key_id, public_key, use }: SignedDocument['key']['entry'],
  keyId: string,
  sha256: Sha256,
): boolean {
  const isActivation = use === 'aep' && change === 'activate' && key_id === keyId;
  return isActivation && jwkThumbprint(sha256, fromBase64Url(public_key)) === keyId;
}

/**
 * Compares the hashes, the log entry, the disclosed values and the receipt with those that follow from
 * the AEP and its signature.
 */
function findCommitmentInconsistency(
  document: SignedDocument,
  sha256: Sha256,
  receipt: Receipt | undefined,
): OfflineFault | null {
  const { aep, disclosures, entry } = document;
  const { payload, signature } = parseEnvelope(document.envelope);
  const { key_id, proof_id } = aep;
  const record = buildProofRecord(sha256, { proof_id, aep: payload, signature, key_id });
  const recordHash = proofRecordHash(sha256, record);
  const unlikeAep = memberUnlikeAep(entry, aep);
  const uncommitted = firstUncommitted(sha256, aep, disclosures);
  return firstBroken([
    [
      'proof_record_mismatch',
      '/proof_record',
      canonicalize(document.proof_record) === canonicalize(record),
    ],
    ['entry_mismatch', `/entry/${unlikeAep ?? ''}`, unlikeAep === null],
    ['aep_hash_mismatch', '/entry/aep_hash', entry.aep_hash === hashHex(sha256, payload)],
    [
      'proof_record_hash_mismatch',
      '/entry/proof_record_hash',
      entry.proof_record_hash === recordHash,
    ],
    ['disclosure_mismatch', `/disclosures/${uncommitted}`, uncommitted === -1],
    ['approval_mismatch', '/approval', isApprovalOf(document, sha256)],
    [
      'receipt_mismatch',
      '/disclosures',
      receipt === undefined || isReceiptOf(aep, disclosures, receipt, sha256),
    ],
  ]);
}

/** Whether the approval, with the activation of its registration, is the one that the AEP names. */
function isApprovalOf({ aep, approval }: SignedDocument, sha256: Sha256): boolean {
  const named = aep.evidence.approval;
  if (named === null || approval === null) return named === approval;
  const { entry, envelope, registration } = approval;
  const { decision, expires_at, proof_id, registration_hash, tenant_id } = envelope.statement;
  return (
    documentHash(sha256, envelope) === named.approval_hash &&
    documentHash(sha256, registration) === named.registration_hash &&
    proof_id === named.pending_proof_id &&
    registration_hash === named.registration_hash &&
    tenant_id === aep.tenant_id &&
    registration.tenant_id === aep.tenant_id &&
    aep.accepted_at < expires_at &&
    (decision === 'approve' || aep.decision.effect === 'DENY') &&
    entry.change === 'activate' &&
    entry.registration_hash === named.registration_hash
  );
}

/** Whether the AEP and its disclosed request hash give the receipt. */
function isReceiptOf(
  aep: Aep,
  disclosures: readonly Disclosure[],
  receipt: Receipt,
  sha256: Sha256,
): boolean {
  const requestHash = disclosures.find(([, name]) => name === REQUEST_HASH)?.[2];
  if (typeof requestHash !== 'string') return false;
  const expected = buildReceipt(sha256, {
    lane: requestTypeOf(aep.subject),
    proof_id: aep.proof_id,
    request_hash: requestHash,
    effect: aep.decision.effect,
  });
  return canonicalize(receipt) === canonicalize(expected);
}

const DETAIL: Partial<Record<OfflineFaultCode, string>> = {
  payload_not_canonical: 'the payload is not JSON in its RFC 8785 form',
  payload_mismatch: 'the shown AEP differs from the one in the envelope',
  proof_id_mismatch: 'proof_id differs from the id that the AEP gives',
  key_id_mismatch: 'the key id differs from the one in the AEP',
  proof_record_mismatch: 'the proof record differs from the one derived from the envelope',
  entry_mismatch: 'the log entry differs from the AEP',
  aep_hash_mismatch: 'the log entry commits to another AEP',
  proof_record_hash_mismatch: 'the log entry commits to another proof record',
  disclosure_mismatch: 'the AEP does not commit to the disclosed value',
  approval_mismatch: 'the AEP names another approval, or the approval does not fit the decision',
  receipt_mismatch: 'the receipt differs from the one derived from the AEP and the request hash',
};

type Rule = [code: OfflineFaultCode, pointer: string, holds: boolean];

function firstBroken(rules: readonly Rule[]): OfflineFault | null {
  for (const [code, pointer, holds] of rules) {
    if (!holds) return { code, detail: DETAIL[code] ?? code, pointer };
  }
  return null;
}
