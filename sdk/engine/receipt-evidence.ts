import type { Receipt } from '../../protocol/aep.js';
import { nobleSha256 } from '../../protocol/hash.js';
import type { OfflineResult, OfflineTrust } from '../../protocol/offline.js';
import { readSigned } from '../../protocol/offline/read.js';
import {
  receiptEvidenceSchema,
  type ReceiptEvidence,
} from '../../protocol/schemas/proof-export.js';
import { SdkError } from '../errors.js';
import { readDocument } from '../http/answers.js';
import type { Deadline } from '../http/attempt.js';
import type { HttpClient } from '../http/client.js';
import { verifyOffline } from '../offline.js';
import { type EngineOptions, invalidInput } from '../options.js';
import { openEngine, requireProofId } from './engine.js';

/** Evidence that belongs to its receipt. */
export interface VerifiedReceiptEvidence {
  /** The document to store, as `canonicalJson` encodes it. */
  evidence: ReceiptEvidence;
  /**
   * The result of `verifyOffline` under the pins; `included` is absent while `tlog_proof` is null. Null
   * without pins: the evidence has the hashes of the receipt, and its signature is not checked.
   */
  verification: (OfflineResult & { decidable: true }) | null;
}

const fetched = new WeakMap<Receipt, Promise<VerifiedReceiptEvidence>>();

/**
 * Waits for the evidence that the SDK fetches after an admission or a denial. Sends no request. Rejects
 * with the error that `onError` gets. Throws `invalid_input` with `receiptEvidence: false`, and for a copy
 * of the receipt.
 */
export async function receiptEvidenceOf(receipt: Receipt): Promise<VerifiedReceiptEvidence> {
  const fetching = fetched.get(receipt);
  if (fetching !== undefined) return fetching;
  const message = 'no evidence of this receipt was fetched: call readReceiptEvidenceHttp';
  throw new SdkError('invalid_input', message);
}

/**
 * `GET /v1/proofs/{proof_id}/receipt-evidence`: the signed proof behind a receipt. Call it for a receipt
 * of a batch, or again once `tlog_proof` can be present. Verifies and stores the evidence like the SDK does
 * after an admission. Needs a key with the scope `read`.
 *
 * Throws `evidence_rejected` for evidence that is not of this receipt, or that the pins do not verify;
 * and the errors of `store`.
 */
export async function readReceiptEvidenceHttp(
  options: EngineOptions,
  receipt: Receipt,
): Promise<VerifiedReceiptEvidence> {
  const engine = openEngine(options);
  requireSettings(options);
  requireProofId(receipt.registry_proof_id);
  return readAndStore(engine, options, receipt);
}

/**
 * Fetches evidence in the background: it must neither delay a receipt nor fail the call that returns
 * one. Throws for invalid options.
 */
export function openEvidenceFetcher(
  engine: HttpClient,
  options: EngineOptions,
): (receipt: Receipt) => void {
  requireSettings(options);
  const { receiptEvidence } = options;
  if (receiptEvidence === false) return () => undefined;
  return (receipt) => {
    const fetching = readAndStore(engine, options, receipt);
    fetched.set(receipt, fetching);
    fetching
      .catch((error: unknown) => receiptEvidence?.onError(error, receipt))
      .catch(() => undefined);
  };
}

async function readAndStore(
  engine: HttpClient,
  options: EngineOptions,
  receipt: Receipt,
): Promise<VerifiedReceiptEvidence> {
  const read = await fetchEvidence(engine, options, receipt);
  const { store } = options.receiptEvidence || {};
  await store?.(read.evidence, receipt);
  return read;
}

/** Evidence of a receipt, verified like the SDK does after an admission. */
export async function fetchEvidence(
  engine: HttpClient,
  options: EngineOptions,
  receipt: Receipt,
  deadline?: Deadline,
): Promise<VerifiedReceiptEvidence> {
  const path = `/v1/proofs/${receipt.registry_proof_id}/receipt-evidence`;
  const answer = await engine.read({ method: 'GET', path }, deadline);
  const document = readDocument(answer, receiptEvidenceSchema);
  const { schema_version, proof_record, entry, key, approval, disclosures, tlog_proof } = document;
  const { entry: activation, tlog_proof: keyProof } = key;
  // Omits members that a newer service added, because `verifyOffline` would reject them.
  const evidence = {
    schema_version,
    proof_record,
    entry,
    key: { entry: activation, tlog_proof: keyProof },
    approval,
    disclosures,
    tlog_proof,
  };
  const { pins } = options.receiptEvidence || {};
  return { evidence, verification: verify(evidence, receipt, pins) };
}

function verify(
  evidence: ReceiptEvidence,
  receipt: Receipt,
  pins: OfflineTrust | undefined,
): VerifiedReceiptEvidence['verification'] {
  if (pins === undefined) {
    const found = readSigned(evidence, nobleSha256, receipt);
    if ('fault' in found) throw rejected(found.fault.detail, found.fault);
    return null;
  }
  const result = verifyOffline(evidence, pins, { receipt });
  if (!result.decidable) throw rejected(`${result.cause}: ${result.detail}`);
  const [fault] = result.faults;
  if (fault !== undefined) throw rejected(fault.detail, fault);
  return result;
}

function rejected(message: string, fault: { code?: SdkError['fault']; pointer?: string } = {}) {
  return new SdkError('evidence_rejected', message, { fault: fault.code, pointer: fault.pointer });
}

function requireSettings({ receiptEvidence = false }: EngineOptions): void {
  if (receiptEvidence === false) return;
  if (typeof receiptEvidence.onError !== 'function') {
    const pointer = '/receiptEvidence/onError';
    throw invalidInput(pointer, `${pointer}: must be a function`);
  }
  // Throws for an unusable pin before a request is sent.
  if (receiptEvidence.pins !== undefined) verifyOffline('', receiptEvidence.pins);
}
