import { buildAep, subjectOf } from '#protocol/aep';
import { attempt } from '#protocol/errors';
import { orderedText, parseStrict } from '#protocol/json';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import type { Aep, FullValidity } from '#protocol/schemas/aep';
import { type Decided, type Effect, isProofOnly } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { Environment } from '#protocol/schemas/primitives';
import type { Db } from '../db/transaction.js';

/** The validity of each artifact of an admission, in seconds from acceptance; null: unlimited. */
export interface Validity {
  proof: number | null;
  certificate: number | null;
  passport: number | null;
  trust: number | null;
}

/** An accepted admission with every input pinned: the decision is a pure function of these. */
export interface PinnedIntake {
  proofId: string;
  tenantNo: number;
  tenantId: string;
  lane: 1 | 2;
  environment: Environment;
  request: Buffer;
  requestHash: Buffer;
  /** Epoch milliseconds. */
  acceptedAt: number;
  salt: Buffer;
  policyDigest: Buffer;
  fixtureHash: Buffer | null;
  validity: Validity;
}

export const UNLIMITED: Validity = {
  proof: null,
  certificate: null,
  passport: null,
  trust: null,
};

/** When a proof's artifacts expire; a denial or an outcome has only its proof. */
export function validUntil(
  acceptedAt: number,
  validity: Validity | null,
  decided: Decided,
): Aep['valid_until'] {
  const ends = endsOf(acceptedAt, validity ?? UNLIMITED);
  return isProofOnly(decided) ? { proof: ends.proof } : ends;
}

function endsOf(acceptedAt: number, validity: Validity): FullValidity {
  const end = (seconds: number | null): string | null =>
    seconds === null ? null : formatTime(acceptedAt + seconds * 1000);
  return {
    proof: end(validity.proof),
    certificate: end(validity.certificate),
    passport: end(validity.passport),
    trust: end(validity.trust),
  };
}

/** The decision on an admission; hashes in lower-case hex. */
export interface Decision {
  effect: Effect;
  reasons: readonly string[];
  inputHash: string;
  engineVersion: string;
  keyId: string;
}

/** An AEP and its RFC 8785 form, which is hashed and signed. */
export interface BuiltAep {
  aep: Aep;
  bytes: Buffer;
}

/** The AEP of an admission: a function of what it pinned, its request and its decision. */
export function aepOf(
  intake: Omit<PinnedIntake, 'tenantNo' | 'lane' | 'request'>,
  request: ExecuteRequest | AgentEnvelope,
  { effect, reasons, inputHash, engineVersion, keyId }: Decision,
): BuiltAep {
  const { validity, acceptedAt } = intake;
  const aep = buildAep({
    proof_id: intake.proofId,
    environment: intake.environment,
    tenant_id: intake.tenantId,
    subject: subjectOf(request),
    request_hash: intake.requestHash.toString('hex'),
    decision: { effect, reasons },
    policy: {
      digest: intake.policyDigest.toString('hex'),
      input_hash: inputHash,
      engine_version: engineVersion,
    },
    evidence: {
      fixture_ref: 'kind' in request ? null : (request.proof_chain_fixture_ref ?? null),
      fixture_hash: intake.fixtureHash?.toString('hex') ?? null,
    },
    accepted_at: formatTime(acceptedAt),
    valid_until: endsOf(acceptedAt, validity),
    salt: intake.salt.toString('hex'),
    key_id: keyId,
  });
  return { aep, bytes: Buffer.from(orderedText(aep)) };
}

/** The columns of a proof that give its AEP again. */
export interface AepRow {
  proofId: string;
  tenantId: string;
  environment: Environment;
  effect: Effect;
  keyId: string;
  engineVersion: string;
  at: Date;
  policyDigest: Buffer;
  fixtureHash: Buffer | null;
  validity: Validity | null;
  /** From here on payload: null after an erasure. */
  request: Buffer | null;
  requestHash: Buffer | null;
  salt: Buffer | null;
  /** Hex. */
  inputHash: string | null;
  reasons: string[] | null;
  signature: Buffer | null;
}

/** Columns of an `AepRow`, from `svc.log_entry e` with `svc.intake i` and `svc.tenant t`. */
export const aepColumns = (sql: Db) => sql`
  e.proof_id as "proofId", t.tenant_id as "tenantId", e.environment, e.effect, e.key_id as "keyId",
  e.engine_version as "engineVersion", e.at, i.policy_digest as "policyDigest",
  i.fixture_hash as "fixtureHash", i.validity, i.request, i.request_hash as "requestHash", i.salt,
  encode(e.input_hash, 'hex') as "inputHash", e.reasons, e.signature`;

/**
 * The AEP that was signed, from its row; null when the row does not form one. An altered row gives
 * another AEP: the caller must compare its hash with the one in the log.
 */
export function rebuildAep({ at, validity, ...row }: AepRow): BuiltAep | null {
  const { request, requestHash, salt, inputHash, reasons } = row;
  if (request === null || requestHash === null || salt === null) return null;
  if (inputHash === null || reasons === null) return null;
  const pinned = { acceptedAt: at.getTime(), validity: validity ?? UNLIMITED, requestHash, salt };
  const rebuilt = attempt(() =>
    aepOf({ ...row, ...pinned }, parseStrict(request) as unknown as ExecuteRequest, {
      ...row,
      inputHash,
      reasons,
    }),
  );
  return rebuilt ?? null;
}
