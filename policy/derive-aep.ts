import { aepBytes, buildAep } from '#protocol/aep';
import { canonicalize } from '#protocol/canonical-json';
import { parseStrict } from '#protocol/json';
import type { Aep } from '#protocol/schemas/aep';
import { formatTime } from '#protocol/time';
import { nativeTextHash } from '#runtime/crypto';
import type { PinnedIntake, Validity } from '#sql/pinned-intake';
import type { PolicyEngine } from './decide.js';
import { IntakeMismatchError } from './errors.js';
import { policyInputJson } from './input.js';
import { readSubject } from './subject.js';

/** What an admission comes to, before anybody signs it. */
export interface DerivedAep {
  aep: Aep;
  /** The AEP's canonical bytes: what is hashed and signed. */
  bytes: Uint8Array;
  requestHash: string;
  /** The exact policy input that was evaluated, and its SHA-256. */
  input: Uint8Array;
  inputHash: string;
}

/**
 * canonicalize → evaluate → AEP. A pure function of the intake row, the policy set that it pins and
 * the id of the key that is to sign: workers take decisions with it and replay takes them again.
 *
 * @throws IntakeMismatchError when the stored request is not the one that was accepted
 * @throws UnknownLaneError
 */
export function deriveAep(intake: PinnedIntake, policy: PolicyEngine, keyId: string): DerivedAep {
  const request = parseStrict(intake.request);
  const requestHash = nativeTextHash(canonicalize(request));
  if (requestHash !== intake.requestHash.toString('hex')) {
    throw new IntakeMismatchError(
      'the stored request does not have the hash it was accepted under',
    );
  }
  const { subject, fixtureRef, policyInput } = readSubject(intake, request);
  const input = canonicalize(policyInputJson(policyInput));
  const inputHash = nativeTextHash(input);
  const decision = policy.decide(policyInput, input);
  const aep = buildAep({
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
    valid_until: endsOf(intake.validity, intake.acceptedAt),
    accepted_at: formatTime(intake.acceptedAt),
    salt: intake.salt.toString('hex'),
    key_id: keyId,
  });
  return { aep, bytes: aepBytes(aep), requestHash, input: Buffer.from(input), inputHash };
}

/** When each artifact stops asserting: the settings pinned at intake, counted from acceptance. */
function endsOf(validity: Validity, acceptedAt: number): Record<keyof Validity, string | null> {
  const end = (seconds: number | null): string | null =>
    seconds === null ? null : formatTime(acceptedAt + seconds * 1000);
  return {
    proof: end(validity.proof),
    certificate: end(validity.certificate),
    passport: end(validity.passport),
    trust: end(validity.trust),
  };
}
