import {
  aepBytes,
  AEP_PAYLOAD_TYPE,
  buildAep,
  buildProofRecord,
  proofRecordHash,
} from '#protocol/aep';
import { fromHex, toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { pae } from '#protocol/dsse';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import type { Effect } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto';
import type { PendingIntake, Validity } from '#sql/append';
import { policyInputJson } from '../policy/input.js';
import type { AdmitContext } from './context.js';
import { IntakeMismatchError } from './errors.js';
import { readSubject } from './subject.js';

/** An admission that is evaluated, hashed and signed, and waits only for its place in the log. */
export interface Prepared {
  intake: PendingIntake;
  effect: Effect;
  aep: Uint8Array;
  signature: Uint8Array;
  aepHash: Uint8Array;
  proofRecordHash: Uint8Array;
  inputHash: Uint8Array;
  input: Uint8Array;
}

/**
 * canonicalize → evaluate → AEP → hash → sign. A pure function of the intake row, the policy set
 * and the key that it names: twice in, the same bytes out (Ed25519 is deterministic).
 */
export async function prepare(context: AdmitContext, intake: PendingIntake): Promise<Prepared> {
  const request = parseStrict(intake.request);
  const requestHash = hashHex(nativeSha256, canonicalBytes(request));
  if (requestHash !== intake.requestHash.toString('hex')) {
    throw new IntakeMismatchError(
      'the stored request does not have the hash it was accepted under',
    );
  }
  const { subject, fixtureRef, policyInput } = readSubject(intake, request);

  const policy = await context.policy(intake.policyDigest);
  const decision = policy.decide(policyInput);
  const input = canonicalBytes(policyInputJson(policyInput));
  const inputHash = hashHex(nativeSha256, input);

  const ends = endsOf(intake.validity, intake.acceptedAt);
  const aep = aepBytes(
    buildAep({
      proof_id: intake.proofId,
      environment: intake.environment,
      tenant_id: intake.tenantId,
      subject,
      request_hash: requestHash,
      decision,
      policy: {
        digest: policy.digest,
        input_hash: inputHash,
        engine_version: policy.engineVersion,
      },
      evidence: {
        fixture_ref: fixtureRef,
        fixture_hash: intake.fixtureHash?.toString('hex') ?? null,
      },
      valid_until: {
        proof: timeOrNull(ends.proof),
        certificate: timeOrNull(ends.certificate),
        passport: timeOrNull(ends.passport),
        trust: timeOrNull(ends.trust),
      },
      accepted_at: formatTime(intake.acceptedAt),
      salt: toHex(intake.salt),
      key_id: context.keyId,
    }),
  );
  const signature = context.signer.sign(pae(AEP_PAYLOAD_TYPE, aep));
  const record = buildProofRecord(nativeSha256, {
    proof_id: intake.proofId,
    aep,
    signature,
    key_id: context.keyId,
    request_hash: requestHash,
    effect: decision.effect,
  });
  return {
    intake,
    effect: decision.effect,
    aep,
    signature,
    aepHash: fromHex(record.aep_hash),
    proofRecordHash: fromHex(proofRecordHash(nativeSha256, record)),
    inputHash: fromHex(inputHash),
    input,
  };
}

/** Epoch milliseconds at which each artifact stops asserting, or null. */
function endsOf(validity: Validity, acceptedAt: number): Validity {
  const end = (seconds: number | null): number | null =>
    seconds === null ? null : acceptedAt + seconds * 1000;
  return {
    proof: end(validity.proof),
    certificate: end(validity.certificate),
    passport: end(validity.passport),
    trust: end(validity.trust),
  };
}

function timeOrNull(at: number | null): string | null {
  return at === null ? null : formatTime(at);
}
