import type { JsonValue } from '#protocol/json';
import { type Db, pipeline, type Transaction } from '../db/transaction.js';
import { arrayOf, batchIdOf, bytesOf, toUuid } from '../db/columns.js';
import { mapDbErrors } from '../db/errors.js';
import { pinnedIntake, type PinnedIntake, type PinnedRow } from './pinned-intake.js';
import type { Environment } from '../tenants/authenticate.js';

/** One that is not settled yet. */
export type PendingIntake = PinnedIntake;

/**
 * The intake rows of those of `proofIds` that are accepted and not yet settled, in the order of their
 * ids. What comes together is mostly the same in everything but four fields: a row has one value of
 * those, of all admissions that share the rest.
 */
export function loadPending(sql: Db, proofIds: string[]): Promise<PendingIntake[]> {
  return mapDbErrors(async () => {
    const rows = await sql<PendingRow[]>`
      select i.tenant_no, t.tenant_id, i.lane, i.environment, i.accepted_at, i.policy_digest,
        i.fixture_hash, i.validity,
        string_agg(uuid_send(i.proof_id) || i.salt || i.request_hash
          || int4send(length(i.request)) || i.request, '') as packed
      from svc.intake_pending p
      join svc.intake i using (proof_id)
      join svc.tenant t using (tenant_no)
      where p.proof_id = any(${arrayOf(proofIds)}::uuid[])
      group by i.tenant_no, t.tenant_id, i.lane, i.environment, i.accepted_at, i.policy_digest,
        i.fixture_hash, i.validity`;
    return rows.flatMap(unpacked).sort((a, b) => (a.proofId < b.proofId ? -1 : 1));
  });
}

type Own = 'proof_id' | 'salt' | 'request_hash' | 'request';
type PendingRow = Omit<PinnedRow, Own> & { packed: Buffer };

/** Before a request: proof id, salt, request hash, and how long it is. */
const HEAD = 16 + 32 + 32 + 4;

function unpacked(row: PendingRow): PendingIntake[] {
  const { packed } = row;
  const shared = pinnedIntake({
    ...row,
    proof_id: '',
    salt: NONE,
    request_hash: NONE,
    request: NONE,
  });
  const found: PendingIntake[] = [];
  for (let at = 0; at < packed.length;) {
    const end = at + HEAD + packed.readInt32BE(at + HEAD - 4);
    found.push({
      ...shared,
      proofId: packed.toString('hex', at, at + 16),
      salt: packed.subarray(at + 16, at + 48),
      requestHash: packed.subarray(at + 48, at + 80),
      request: packed.subarray(at + HEAD, end),
    });
    at = end;
  }
  return found;
}

const NONE = Buffer.alloc(0);

/** What a batch counts when an admission of it is settled: that many of its items. */
export interface BatchRef {
  batchId: string;
  items: number;
}

/**
 * Claims admissions for settlement in this transaction, and says which batch each came with. Only
 * what is still pending is claimed, and only one transaction can ever commit the claim, so nothing
 * is settled twice.
 *
 * What was accepted by a clock that is ahead of this one waits until its time has come: the database's
 * was set back, or a standby of another clock was promoted, and nobody is refused for that. Beyond a
 * day no clock was so wrong, and the gates refuse it.
 */
export async function claimPending(
  tx: Transaction,
  proofIds: string[],
): Promise<Map<string, BatchRef | null>> {
  // Of a batch all is the same but the ids: one row has them.
  const rows = await tx<{ ids: string; batch_id: string | null; batch_items: number }[]>`
    with claimed as (
      delete from svc.intake_pending where proof_id = any(${arrayOf(proofIds)}::uuid[])
        and (accepted_at <= (select clock_timestamp() + interval '1 second')
          or accepted_at > (select clock_timestamp() + interval '1 day'))
      returning proof_id, batch_id, batch_items)
    select ${idsTogether(tx)} as ids, batch_id::text, batch_items from claimed
    group by batch_id, batch_items`;
  const claimed = new Map<string, BatchRef | null>();
  for (const { ids, batch_id, batch_items } of rows) {
    const share = batch_id === null ? null : { batchId: batchIdOf(batch_id), items: batch_items };
    for (const proofId of idsApart(ids)) claimed.set(proofId, share);
  }
  return claimed;
}

/** Of the rows of a group the proof ids, one after the other. */
const idsTogether = (tx: Db) => tx`encode(string_agg(uuid_send(proof_id), ''), 'hex')`;

const ID_LENGTH = 32;

function idsApart(ids: string): string[] {
  return Array.from({ length: ids.length / ID_LENGTH }, (_, i) =>
    ids.slice(i * ID_LENGTH, (i + 1) * ID_LENGTH),
  );
}

/** What the gates say of an accepted admission, as of now. */
export interface Gate {
  allowlisted: boolean;
  laneOpen: boolean;
  /** The API key that asked was not revoked since; that it expired since changes nothing. */
  keyHolds: boolean;
  /** Its environment is its tenant's, its time is past, and its policy was active then. */
  pinsHold: boolean;
}

/** The gates of admissions, by proof id. What the intake pins is not believed but checked. */
export async function gatesOf(tx: Db, proofIds: string[]): Promise<Map<string, Gate>> {
  const rows = await tx<
    {
      ids: string;
      allowlisted: boolean;
      lane_open: boolean;
      key_holds: boolean;
      pins_hold: boolean;
    }[]
  >`
    select ${idsTogether(tx)} as ids, allowlisted, lane_open, key_holds, pins_hold
    from (select i.proof_id, t.allowlisted, l.open as lane_open,
        i.key_no is null or exists (select from svc.api_key k where k.key_no = i.key_no
          and k.tenant_no = i.tenant_no and k.revoked_at is null) as key_holds,
        i.environment = t.environment
          and i.accepted_at <= clock_timestamp() + interval '1 second'
          and exists (select from svc.policy_activation a
            where a.digest = i.policy_digest and a.active_from <= i.accepted_at) as pins_hold
      from svc.intake i
      join svc.tenant t using (tenant_no)
      join svc.lane l on l.environment = t.environment
      where i.proof_id = any(${arrayOf(proofIds)}::uuid[])) asked
    group by allowlisted, lane_open, key_holds, pins_hold`;
  const gates = new Map<string, Gate>();
  for (const row of rows) {
    const gate = {
      allowlisted: row.allowlisted,
      laneOpen: row.lane_open,
      keyHolds: row.key_holds,
      pinsHold: row.pins_hold,
    };
    for (const proofId of idsApart(row.ids)) gates.set(proofId, gate);
  }
  return gates;
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
  tenantNo: number;
  lane: 1 | 2;
  isOutcome: boolean;
  /** Null for an outcome. */
  action: string | null;
  /** Null on the agent lane. */
  intentId: string | null;
  leafIndex: number;
  effect: 'ADMIT' | 'DENY';
  environment: Environment;
  keyId: string;
  /** As `packAep` makes it. */
  packedAep: Uint8Array;
  signature: Uint8Array;
  /** What was decided on: its RFC 8785 form, and the SHA-256 of that in lower-case hex. */
  input: { text: string; hash: string };
}

/** Stores the payload side of appended proofs: AEP, signature, policy input. */
export async function insertProofs(tx: Transaction, proofs: NewProof[]): Promise<void> {
  if (proofs.length === 0) return;
  const ids = proofs.map((proof) => proof.proofId);
  const aeps = bytesOf(proofs.map((proof) => proof.packedAep));
  const signatures = bytesOf(proofs.map((proof) => proof.signature));
  const storing = tx`
    insert into svc.proof (proof_id, leaf_index, tenant_no, lane, is_outcome, action, intent_id, effect,
      environment, key_id, aep, signature)
    select proof_id, leaf_index, tenant_no, lane, is_outcome, action, intent_id, effect, environment, key_id,
      substring(${aeps.bytes}::bytea from aep_start for aep_length),
      substring(${signatures.bytes}::bytea from signature_start for signature_length)
    from unnest(${arrayOf(ids)}::uuid[], ${arrayOf(proofs.map((proof) => proof.leafIndex))}::bigint[],
      ${arrayOf(proofs.map((proof) => proof.tenantNo))}::int[],
      ${arrayOf(proofs.map((proof) => proof.lane))}::smallint[],
      ${arrayOf(proofs.map((proof) => proof.isOutcome))}::boolean[],
      ${proofs.map((proof) => proof.action)}::text[],
      ${proofs.map((proof) => proof.intentId)}::text[],
      ${arrayOf(proofs.map((proof) => proof.effect))}::text[],
      ${arrayOf(proofs.map((proof) => proof.environment))}::text[],
      ${proofs.map((proof) => proof.keyId)}::text[],
      ${aeps.starts}::int[], ${aeps.lengths}::int[],
      ${signatures.starts}::int[], ${signatures.lengths}::int[])
      as added(proof_id, leaf_index, tenant_no, lane, is_outcome, action, intent_id, effect, environment, key_id,
        aep_start, aep_length, signature_start, signature_length)`;
  // Equal inputs are common, and one row serves them.
  const inputs = [...new Map(proofs.map(({ input }) => [input.hash, input.text]))];
  const storingInputs = tx`
    insert into svc.policy_input ${tx(
      inputs.map(([hash, text]) => ({
        input_hash: Buffer.from(hash, 'hex'),
        input: Buffer.from(text),
      })),
    )} on conflict do nothing`;
  await pipeline(storing, storingInputs);
}

/** The input that a decision was taken on, by its hash, or null. */
export function readPolicyInput(sql: Db, inputHash: Uint8Array): Promise<JsonValue | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ input: Buffer }[]>`
      select input from svc.policy_input where input_hash = ${Buffer.from(inputHash)}`;
    return row === undefined ? null : (JSON.parse(row.input.toString('utf8')) as JsonValue);
  });
}
