import { AEP_PAYLOAD_TYPE, proofCommitments, requestTypeOf } from '#protocol/aep';
import { pae } from '#protocol/dsse';
import type { AepSubject } from '#protocol/schemas/aep';
import type { Effect } from '#protocol/status';
import { deriveAep, type PrintedInput } from '#policy/derive-aep';
import { nativeBase64, nativeSha256 } from '#runtime/crypto/node';
import type { PendingIntake } from '#sql/admissions/append';
import { packAep } from '#sql/proofs/packed-aep';
import type { AdmitContext } from './context.js';

/** An admission that is evaluated, hashed and signed, and has no leaf index yet. */
export interface Prepared {
  intake: PendingIntake;
  effect: Effect;
  subject: AepSubject;
  /** Stored form of the AEP. */
  packedAep: Uint8Array;
  signature: Uint8Array;
  /** Log commitments, lower-case hex. */
  aepHash: string;
  proofRecordHash: string;
  input: PrintedInput;
}

/**
 * derive (canonicalize → evaluate → AEP) → hash → sign. Deterministic for an intake row, policy set
 * and key, because Ed25519 is: a repeated run gives the same bytes.
 */
export async function prepare(context: AdmitContext, intake: PendingIntake): Promise<Prepared> {
  const policy = await context.policy(intake.policyDigest);
  const { aep, text, requestHash, input } = deriveAep(intake, policy, context.keyId);
  const bytes = Buffer.from(text);
  const { effect } = aep.decision;
  const signature = context.signer.sign(pae(AEP_PAYLOAD_TYPE, bytes));
  const commitments = proofCommitments(
    nativeSha256,
    {
      proof_id: intake.proofId,
      aep: bytes,
      signature,
      key_id: context.keyId,
      request_hash: requestHash,
      effect,
      lane: requestTypeOf(aep.subject),
    },
    nativeBase64,
  );
  return {
    intake,
    effect,
    subject: aep.subject,
    packedAep: packAep(aep, text),
    signature,
    aepHash: commitments.aep_hash,
    proofRecordHash: commitments.proof_record_hash,
    input,
  };
}
