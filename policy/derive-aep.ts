import { aepText, buildAep } from '#protocol/aep';
import { canonicalize, parseStrict } from '#protocol/json';
import type { Aep } from '#protocol/schemas/aep';
import { formatTime } from '#protocol/time';
import { nativeTextHash } from '#runtime/crypto/node';
import type { PinnedIntake } from '#sql/admissions/intake';
import { policyInputText, type PolicyEngine, type PolicyInput } from './decide.js';
import { IntakeMismatchError } from './errors.js';
import { readSubject } from './subject.js';

/** The unsigned AEP of an admission. */
export interface DerivedAep {
  aep: Aep;
  /** The AEP's canonical form; its bytes are hashed and signed. */
  text: string;
  requestHash: string;
  input: PrintedInput;
}

/**
 * canonicalize → evaluate → AEP. A pure function of the intake row, its pinned policy set and the
 * id of the signing key: workers decide with it, and replay repeats the decision.
 *
 * @throws IntakeMismatchError when the stored request is not the accepted one
 * @throws UnknownRequestTypeError
 */
export function deriveAep(intake: PinnedIntake, policy: PolicyEngine, keyId: string): DerivedAep {
  const request = parseStrict(intake.request);
  const requestHash = nativeTextHash(canonicalize(request));
  if (requestHash !== intake.requestHash.toString('hex')) {
    throw new IntakeMismatchError(
      'the hash of the stored request differs from the one at acceptance',
    );
  }
  const { subject, fixtureRef, policyInput } = readSubject(intake, request);
  const input = printedInput(policyInput);
  const decision = policy.decide(policyInput, input.text);
  const aep = buildAep({
    proof_id: intake.proofId,
    environment: intake.environment,
    tenant_id: intake.tenantId,
    subject,
    request_hash: requestHash,
    decision,
    policy: {
      digest: policy.digest,
      input_hash: input.hash,
      engine_version: policy.engineVersion,
    },
    evidence: {
      fixture_ref: fixtureRef,
      fixture_hash: intake.fixtureHash?.toString('hex') ?? null,
    },
    ...timesOf(intake),
    salt: intake.salt.toString('hex'),
    key_id: keyId,
  });
  return { aep, text: aepText(aep), requestHash, input };
}

/** A policy input in its RFC 8785 form, and the SHA-256 of that form. */
export interface PrintedInput {
  text: string;
  hash: string;
}

const KEPT_INPUTS = 10_000;
const inputs = new Map<string, PrintedInput>();

/** Equal inputs are common and share one hash. */
function printedInput(input: PolicyInput): PrintedInput {
  const text = policyInputText(input);
  const known = inputs.get(text);
  if (known !== undefined) return known;
  const printed = { text, hash: nativeTextHash(text) };
  if (inputs.size >= KEPT_INPUTS) inputs.clear();
  inputs.set(text, printed);
  return printed;
}

/** Times of acceptance and expiry, from the settings pinned at intake. */
function timesOf({ validity, acceptedAt }: PinnedIntake) {
  const end = (seconds: number | null): string | null =>
    seconds === null ? null : formatTime(acceptedAt + seconds * 1000);
  return {
    accepted_at: formatTime(acceptedAt),
    valid_until: {
      proof: end(validity.proof),
      certificate: end(validity.certificate),
      passport: end(validity.passport),
      trust: end(validity.trust),
    },
  };
}
