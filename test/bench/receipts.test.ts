import { expect, it } from 'vitest';
import {
  checkReceipts,
  receiptFaults,
  type Outsider,
  type ReceiptEvidence,
} from '#bench/receipts/receipt-checker';
import { buildReceipt } from '#protocol/aep';
import { parseStrict } from '#protocol/json';
import { sha256 } from '../fixtures/leaves.js';
import {
  admitted,
  aepKey,
  denied,
  exportOf,
  logVkey,
  ORIGIN,
  tlogProofOf,
  type WorkedProof,
} from '../fixtures/worked-log.js';

const trust = { aepKeys: [aepKey.publicKey], log: { vkey: logVkey, origin: ORIGIN } };

function evidenceOf(proof: WorkedProof): ReceiptEvidence {
  const { proofId: proof_id, requestHash: request_hash, leafIndex: leaf_index, aep } = proof;
  const { effect } = aep.decision;
  const exported = exportOf(proof);
  return {
    request: parseStrict(proof.request),
    effect,
    receipt: buildReceipt(sha256, { proof_id, request_hash, effect, lane: 'execute' }),
    verdict: {
      identifier: proof_id,
      verification: { verification_status: 'VALID', can_assert_validity: true },
      artifact: { ...exported.entry, effect },
      integrity: { leaf_index },
    },
    exported,
    tlogProof: tlogProofOf(leaf_index),
  };
}

type Tamper = (evidence: ReceiptEvidence, other: ReceiptEvidence) => unknown;

it.each<[fault: string, tamper: Tamper]>([
  ['receipt_of_another_request', (e, o) => (e.request = o.request)],
  ['wrong_effect', (e) => (e.effect = 'DENY')],
  ['not_valid_in_public', (e) => (e.verdict.verification.verification_status = 'REVOKED')],
  ['not_valid_in_public', (e) => (e.verdict.verification.can_assert_validity = false)],
  ['public_of_another_proof', (e, o) => (e.verdict.artifact.aep_hash = o.exported.entry.aep_hash)],
  ['export_does_not_prove_receipt', (e) => (e.receipt = { ...e.receipt, response_hash: '' })],
  ['not_under_the_public_checkpoint', (e) => (e.tlogProof = e.tlogProof.replace('\nlog', '\nl0g'))],
  ['not_under_the_public_checkpoint', (e) => (e.verdict.integrity.leaf_index += 1)],
])('receiptFaults > reports %s', (fault, tamper) => {
  const [evidence, other] = [admitted, denied].map(evidenceOf) as [
    ReceiptEvidence,
    ReceiptEvidence,
  ];
  for (const one of [evidence, other]) expect(receiptFaults(one, trust)).toEqual([]);
  tamper(evidence, other);
  expect(receiptFaults(evidence, trust)).toEqual([fault]);
});

it('checkReceipts > reports a receipt that no server can prove', async () => {
  const nowhere = 'http://127.0.0.1:1';
  const engine = { engineUrl: nowhere, apiKey: 'none', tenantId: 'demo' };
  const outsider: Outsider = { engine, registry: { publicUrl: nowhere }, trust };
  const found = await checkReceipts(outsider, [evidenceOf(denied)], 100);
  expect(found).toMatchObject({ checked: 1, denied: 1 });
  expect(found.wrong).toEqual([expect.stringContaining(denied.proofId)]);
});
