import type { JsonValue } from '#protocol/json';
import type { Db, Transaction } from './db.js';
import { asking } from './errors.js';
import { fromUuid, toUuid } from './ids.js';
import type { Environment } from './tenants.js';

/** How long each artifact of an admission asserts, in seconds from acceptance; null: no end. */
export interface Validity {
  proof: number | null;
  certificate: number | null;
  passport: number | null;
  trust: number | null;
}

/** An accepted admission with every input pinned. */
export interface PendingIntake {
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

/** The intake rows of those of `proofIds` that are accepted and not yet settled. */
export function loadPending(sql: Db, proofIds: string[]): Promise<PendingIntake[]> {
  return asking(async () => {
    const rows = await sql<
      {
        proof_id: string;
        tenant_no: number;
        tenant_id: string;
        lane: 1 | 2;
        environment: Environment;
        request: Buffer;
        request_hash: Buffer;
        accepted_at: Date;
        salt: Buffer;
        policy_digest: Buffer;
        fixture_hash: Buffer | null;
        validity: Validity;
      }[]
    >`
      select i.proof_id::text, i.tenant_no, t.tenant_id, i.lane, i.environment, i.request,
        i.request_hash, i.accepted_at, i.salt, i.policy_digest, i.fixture_hash, i.validity
      from svc.intake_pending p
      join svc.intake i using (proof_id)
      join svc.tenant t using (tenant_no)
      where p.proof_id = any(${proofIds.map(toUuid)}::uuid[])
      order by i.proof_id`;
    return rows.map((row) => ({
      proofId: fromUuid(row.proof_id),
      tenantNo: row.tenant_no,
      tenantId: row.tenant_id,
      lane: row.lane,
      environment: row.environment,
      request: row.request,
      requestHash: row.request_hash,
      acceptedAt: row.accepted_at.getTime(),
      salt: row.salt,
      policyDigest: row.policy_digest,
      fixtureHash: row.fixture_hash,
      validity: row.validity,
    }));
  });
}

/**
 * Claims admissions for settlement in this transaction. Only what is still pending is claimed, and
 * only one transaction can ever commit the claim, so nothing is settled twice.
 */
export async function claimPending(tx: Transaction, proofIds: string[]): Promise<Set<string>> {
  const rows = await tx<{ proof_id: string }[]>`
    delete from svc.intake_pending where proof_id = any(${proofIds.map(toUuid)}::uuid[])
    returning proof_id::text`;
  return new Set(rows.map((row) => fromUuid(row.proof_id)));
}

/** Whether tenants are allowlisted and their lanes open, by tenant number, as of now. */
export async function gatesOf(
  tx: Db,
  tenantNos: number[],
): Promise<Map<number, { allowlisted: boolean; laneOpen: boolean }>> {
  const rows = await tx<{ tenant_no: number; allowlisted: boolean; lane_open: boolean }[]>`
    select t.tenant_no, t.allowlisted, l.open as lane_open
    from svc.tenant t join svc.lane l using (environment)
    where t.tenant_no = any(${tenantNos}::int[])`;
  return new Map(
    rows.map((row) => [row.tenant_no, { allowlisted: row.allowlisted, laneOpen: row.lane_open }]),
  );
}

/** Closes claimed admissions without a proof, and gives their identity back. */
export async function refuse(
  tx: Transaction,
  refusals: { proofId: string; code: string; detail: string }[],
): Promise<void> {
  if (refusals.length === 0) return;
  const rows = refusals.map(({ proofId, code, detail }) => ({
    proof_id: toUuid(proofId),
    code,
    detail,
  }));
  await tx`insert into svc.refusal ${tx(rows)}`;
  await tx`
    update svc.intake set refused = true
    where proof_id = any(${rows.map((row) => row.proof_id)}::uuid[])`;
}

export interface NewProof {
  proofId: string;
  leafIndex: number;
  effect: 'ADMIT' | 'DENY';
  environment: Environment;
  keyId: string;
  aep: Uint8Array;
  signature: Uint8Array;
  inputHash: Uint8Array;
  input: Uint8Array;
}

/** Stores the payload side of appended proofs: AEP, signature, policy input. */
export async function insertProofs(tx: Transaction, proofs: NewProof[]): Promise<void> {
  if (proofs.length === 0) return;
  const rows = proofs.map((proof) => ({
    proof_id: toUuid(proof.proofId),
    leaf_index: proof.leafIndex,
    effect: proof.effect,
    environment: proof.environment,
    key_id: proof.keyId,
    aep: Buffer.from(proof.aep),
    signature: Buffer.from(proof.signature),
  }));
  await tx`insert into svc.proof ${tx(rows)}`;
  const inputs = new Map(
    proofs.map(({ inputHash, input }) => [
      Buffer.from(inputHash).toString('hex'),
      { input_hash: Buffer.from(inputHash), input: Buffer.from(input) },
    ]),
  );
  await tx`
    insert into svc.policy_input ${tx([...inputs.values()])} on conflict do nothing`;
}

/** The input that a decision was taken on, by its hash, or null. */
export function readPolicyInput(sql: Db, inputHash: Uint8Array): Promise<JsonValue | null> {
  return asking(async () => {
    const [row] = await sql<{ input: Buffer }[]>`
      select input from svc.policy_input where input_hash = ${Buffer.from(inputHash)}`;
    return row === undefined ? null : (JSON.parse(row.input.toString('utf8')) as JsonValue);
  });
}
