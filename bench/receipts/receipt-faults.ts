import { canonicalBytes, type JsonValue } from '#protocol/json';
import { openCheckpoint } from '#protocol/checkpoint';
import { documentHash } from '#protocol/hash';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { verifyOffline } from '#protocol/offline';
import type { AgentReceipt, ExecuteReceipt } from '#protocol/schemas/admission';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { Effect } from '#protocol/status';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';

/** Keys that a client pins; never taken from the service's answers. */
export interface PinnedKeys {
  /** 32 bytes. */
  aepKey: Uint8Array;
  logVkey: string;
  logOrigin: string;
}

/** Every answer of the service about one admission. */
export interface ReceiptEvidence {
  request: JsonValue;
  /** The policy's decision for that request. */
  effect: Effect;
  receipt: ExecuteReceipt | AgentReceipt;
  /** The public lookup. */
  verdict: PublicVerdict;
  /** The engine's export. */
  exported: ProofExport;
  /** The public log's signed checkpoint, and the inclusion path of the proof's leaf. */
  checkpoint: string;
  path: readonly Uint8Array[];
}

/** The checked part of a public lookup. */
export interface PublicVerdict {
  identifier: string;
  verification: { verification_status: string; can_assert_validity: boolean };
  artifact: { aep_hash: string; proof_record_hash: string; effect: string };
  integrity: { leaf_index: number };
}

/** All faults of a receipt, for a client that trusts two keys and no program. */
export function receiptFaults(evidence: ReceiptEvidence, trust: PinnedKeys): string[] {
  const { receipt, verdict, exported, effect } = evidence;
  const { response_hash: responseHash, ...hashed } = receipt;
  const proofId = receipt.registry_proof_id;
  const status = effect === 'ADMIT' ? 'ADMITTED' : 'DENIED';
  const effects = [verdict.artifact.effect, exported.aep.decision.effect];
  const checks = {
    receipt_of_another_request:
      receipt.request_hash === documentHash(nativeSha256, evidence.request),
    wrong_response_hash: responseHash === documentHash(nativeSha256, hashed),
    wrong_effect: receipt.status === status && effects.every((one) => one === effect),
    not_valid_in_public:
      verdict.verification.verification_status === 'VALID' &&
      verdict.verification.can_assert_validity,
    public_of_another_proof:
      verdict.identifier === proofId &&
      verdict.artifact.aep_hash === exported.entry.aep_hash &&
      verdict.artifact.proof_record_hash === exported.entry.proof_record_hash,
    export_does_not_verify: verifiesOffline(exported, trust),
    export_of_another_proof:
      exported.proof_id === proofId &&
      exported.request_hash === receipt.request_hash &&
      exported.response_hash === responseHash,
    not_under_the_public_checkpoint: isIncluded(evidence, trust),
  };
  return Object.entries(checks).flatMap(([fault, passed]) => (passed ? [] : [fault]));
}

function verifiesOffline(
  exported: ProofExport,
  { aepKey, logVkey, logOrigin }: PinnedKeys,
): boolean {
  const result = verifyOffline(
    exported,
    { aepKeys: [aepKey], log: { vkey: logVkey, origin: logOrigin } },
    { sha256: nativeSha256, verify: nativeVerify },
  );
  return result.decidable && result.authentic && result.included === true;
}

/** Whether the public tree has the exported entry at the index of the public verdict. */
function isIncluded(
  { checkpoint, path, exported, verdict }: ReceiptEvidence,
  { logVkey, logOrigin }: PinnedKeys,
): boolean {
  try {
    const { size, root } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify);
    return verifyInclusion(nativeSha256, {
      index: verdict.integrity.leaf_index,
      size,
      leafHash: leafHash(nativeSha256, canonicalBytes(exported.entry)),
      path,
      root,
    });
  } catch {
    return false;
  }
}
