import { buildAep, subjectOf } from '#protocol/aep';
import { attempt } from '#protocol/errors';
import { commitmentsOf, disclosuresOf, type SaltOf, saltsFrom } from '#protocol/commitments';
import { documentHash } from '#protocol/hash';
import { orderedText, parseStrict } from '#protocol/json';
import {
  type Budgets,
  type PolicyInput,
  policyInputText,
  inputBudgets,
} from '#protocol/policy-input';
import { membersHash } from '#protocol/run';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import { type StoredApproval, storedApprovalSchema } from '#protocol/schemas/approvals';
import type { Aep, ClosedRun, FullValidity } from '#protocol/schemas/aep';
import { type Decided, type Effect, isProofOnly } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { Environment } from '#protocol/schemas/primitives';
import type { BuiltFrom } from '#protocol/verify';
import { nativeSha256, nativeTextHash } from '#runtime/crypto/node';
import { asTenants, type Db, type Pool } from '../db/transaction.js';

/** The validity of each artifact of an admission, in seconds from acceptance; null: unlimited. */
export interface Validity {
  proof: number | null;
  certificate: number | null;
  passport: number | null;
  trust: number | null;
  /** For how many seconds from acceptance the action can be approved; {@link APPROVAL_SECONDS} when absent. */
  approval?: number;
}

export const APPROVAL_SECONDS = 900;

/** An accepted admission. The decision also depends on the policy set, the key and the counters. */
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
  /** HMAC key of the salts, 32 bytes. */
  seed: Buffer;
  /** Whether the API key that sent the request is restricted to the agent of the request. */
  bound: boolean;
  policyDigest: Buffer;
  fixtureHash: Buffer | null;
  validity: Validity;
  /** A `StoredApproval` for a second decision; null for a first decision. */
  approval: Buffer | null;
}

export const UNLIMITED: Validity = {
  proof: null,
  certificate: null,
  passport: null,
  trust: null,
};

type SharedColumn = Exclude<keyof PinnedIntake, 'proofId' | 'request' | 'requestHash' | 'seed'>;
export type SharedRow = Omit<Pick<PinnedIntake, SharedColumn>, 'acceptedAt' | 'validity'> & {
  acceptedAt: Date;
  validity: Validity | null;
};

/** Columns of a SharedRow, from `svc.intake i join svc.tenant t`. */
export const sharedColumns = (sql: Db) => sql`
  i.tenant_no as "tenantNo", t.tenant_id as "tenantId", i.lane, i.environment,
  i.accepted_at as "acceptedAt", i.bound, i.policy_digest as "policyDigest",
  i.fixture_hash as "fixtureHash", i.validity, i.approval`;

export const sharedPins = ({ acceptedAt, validity, ...row }: SharedRow) => ({
  ...row,
  acceptedAt: acceptedAt.getTime(),
  validity: validity ?? UNLIMITED,
});

/** The pinned inputs of one of the tenant's admissions; null when the admission is unknown or erased. */
export function readPinnedIntake(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PinnedIntake | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<(SharedRow & Omit<PinnedIntake, SharedColumn>)[]>`
      select ${sharedColumns(tx)}, i.proof_id as "proofId", i.request,
        i.request_hash as "requestHash", i.seed
      from svc.intake i join svc.tenant t using (tenant_no)
      where i.proof_id = ${proofId}::uuid and i.tenant_no = ${tenantNo}
        and num_nulls(i.request, i.request_hash, i.seed) = 0`;
    return row === undefined ? null : { ...row, ...sharedPins(row) };
  });
}

/** When a proof's artifacts expire. Only the admission of an action has artifacts besides its proof. */
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
  budgets: Budgets;
  engineVersion: string;
  keyId: string;
  /** For a close, count and hash of the logged proofs of its run; null or absent for other subjects. */
  closedRun?: ClosedRun | null;
}

/** An AEP and its RFC 8785 form, which is hashed and signed. */
export interface BuiltAep extends BuiltFrom {
  bytes: Buffer;
  input: PolicyInput;
}

export function policyInputOf(
  { approval, bound, environment, fixtureHash, tenantId }: PolicyPins,
  request: ExecuteRequest | AgentEnvelope,
  budgets: Budgets = {},
): PolicyInput {
  const stored = readStoredApproval(approval);
  const agent = 'kind' in request ? request.agent : null;
  const ref = 'kind' in request ? undefined : request.proof_chain_fixture_ref;
  return {
    tenant: { tenant_id: tenantId, environment },
    environment,
    lane: agent === null ? 'execute' : 'agent',
    action: 'action' in request ? request.action : null,
    agent: agent && { id: agent.id, framework: agent.framework ?? null, bound },
    tool: 'tool' in request ? (request.tool ?? null) : null,
    fixture: ref === undefined ? null : { ref, hash: fixtureHash?.toString('hex') ?? null },
    facts: 'facts' in request ? (request.facts ?? {}) : {},
    approval: stored && {
      approver: stored.registration.approver,
      registration_hash: stored.envelope.statement.registration_hash,
    },
    budgets: inputBudgets(budgets),
  };
}

type PolicyPins = Pick<
  PinnedIntake,
  'approval' | 'bound' | 'environment' | 'fixtureHash' | 'tenantId'
>;

/** @throws ProtocolError or ZodError unless the bytes are a stored approval */
export function readStoredApproval(bytes: Buffer | null): StoredApproval | null {
  return bytes === null ? null : storedApprovalSchema.parse(parseStrict(bytes));
}

function approvalEvidence(bytes: Buffer | null): Aep['evidence']['approval'] {
  const stored = readStoredApproval(bytes);
  if (stored === null) return null;
  const { proof_id, registration_hash } = stored.envelope.statement;
  return {
    pending_proof_id: proof_id,
    approval_hash: documentHash(nativeSha256, stored.envelope),
    registration_hash,
  };
}

const inputHashOf = (input: PolicyInput, saltOf: SaltOf): string =>
  nativeTextHash(policyInputText(input, saltOf('input')));

/** The AEP of an admission: a function of its pinned inputs, its request and its decision. */
export function aepOf(
  intake: Omit<PinnedIntake, 'tenantNo' | 'lane' | 'request'>,
  request: ExecuteRequest | AgentEnvelope,
  { effect, reasons, budgets, engineVersion, keyId, closedRun }: Decision,
  input: PolicyInput = policyInputOf(intake, request, budgets),
): BuiltAep {
  const { validity, acceptedAt, seed } = intake;
  const saltOf = saltsFrom(nativeSha256, seed);
  const requestHash = intake.requestHash.toString('hex');
  const disclosures = disclosuresOf(saltOf, request, requestHash, budgets);
  const aep = buildAep({
    proof_id: intake.proofId,
    environment: intake.environment,
    tenant_id: intake.tenantId,
    subject: subjectOf(request, intake.bound, closedRun),
    ...commitmentsOf(nativeSha256, disclosures),
    decision: { effect, reasons },
    policy: {
      digest: intake.policyDigest.toString('hex'),
      input_hash: inputHashOf(input, saltOf),
      engine_version: engineVersion,
    },
    evidence: {
      fixture_ref: 'kind' in request ? null : (request.proof_chain_fixture_ref ?? null),
      fixture_hash: intake.fixtureHash?.toString('hex') ?? null,
      approval: approvalEvidence(intake.approval),
    },
    accepted_at: formatTime(acceptedAt),
    valid_until: endsOf(acceptedAt, validity),
    salt: saltOf('aep'),
    key_id: keyId,
  });
  return { aep, bytes: Buffer.from(orderedText(aep)), document: request, input, requestHash };
}

/** The columns from which the AEP of a proof is rebuilt. */
export interface AepRow {
  proofId: string;
  tenantId: string;
  environment: Environment;
  effect: Effect;
  keyId: string;
  engineVersion: string;
  bound: boolean;
  at: Date;
  policyDigest: Buffer;
  fixtureHash: Buffer | null;
  validity: Validity | null;
  /** This column and the columns below are payload: null after an erasure. */
  request: Buffer | null;
  requestHash: Buffer | null;
  seed: Buffer | null;
  approval: Buffer | null;
  reasons: string[] | null;
  /** Counter values; null after an erasure, or if no counter applied. */
  budgets: Budgets | null;
  signature: Buffer | null;
  /** For a close, the other proofs of its run in the log, in log order; otherwise null. */
  runMembers: RunMemberRow[] | null;
}

/** A proof of a run; lower-case hex. */
type RunMemberRow = { proofId: string; aepHash: string };

/** Columns of an `AepRow`, from `svc.log_entry e` with `svc.intake i` and `svc.tenant t`. */
export const aepColumns = (sql: Db) => sql`
  e.proof_id as "proofId", e.environment, e.effect, e.key_id as "keyId", e.at, ${otherAepColumns(sql)}`;

/** The columns of an `AepRow` that an `EntryRow` lacks. */
export const otherAepColumns = (sql: Db) => sql`
  t.tenant_id as "tenantId", e.engine_version as "engineVersion", i.policy_digest as "policyDigest",
  i.bound, i.fixture_hash as "fixtureHash", i.validity, i.request, i.request_hash as "requestHash",
  i.seed, i.approval, e.reasons, e.budgets, e.signature,
  case when i.run_closes then (
    select coalesce(jsonb_agg(jsonb_build_object('proofId', replace(m.proof_id::text, '-', ''),
      'aepHash', encode(l.aep_hash, 'hex')) order by l.leaf_index), '[]')
    from svc.intake m cross join lateral (
      select * from svc.log_entry where proof_id = m.proof_id offset 0) l
    where m.tenant_no = i.tenant_no and m.run_key = i.run_key and not m.run_closes
      and not m.refused and l.leaf_index < e.leaf_index) end as "runMembers"`;

/** Count and hash that the close of a run states about its other proofs; `members` is in log order. */
export function statedRun(members: readonly RunMemberRow[] | null): ClosedRun | null {
  return members && { count: members.length, members_hash: membersHash(nativeSha256, members) };
}

/**
 * The AEP that was signed, from its row; null when the row does not form an AEP. An altered row
 * yields another AEP, so the caller must compare the hash of the AEP with the hash in the log.
 */
export function rebuildAep({ at, validity, ...row }: AepRow): BuiltAep | null {
  const { request, requestHash, runMembers, seed, reasons } = row;
  if (request === null || requestHash === null || seed === null || reasons === null) return null;
  const pinned = { acceptedAt: at.getTime(), validity: validity ?? UNLIMITED, requestHash, seed };
  const rebuilt = attempt(() =>
    aepOf({ ...row, ...pinned }, parseStrict(request) as unknown as ExecuteRequest, {
      ...row,
      reasons,
      budgets: row.budgets ?? {},
      closedRun: statedRun(runMembers),
    }),
  );
  return rebuilt ?? null;
}
