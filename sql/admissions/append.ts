import type { JsonValue } from '#protocol/json';
import { type Db, pipeline, type Transaction } from '../db/transaction.js';
import { arrayOf, batchIdOf } from '../db/columns.js';
import type { PinnedIntake } from '../proofs/rebuild-aep.js';
import { sharedColumns, sharedPins, type SharedRow } from './intake.js';

export type PendingIntake = PinnedIntake;

/**
 * Reads those of `proofIds` that are still pending, ordered by id. Admissions of one batch share most
 * columns, so rows are grouped and each packs the four columns that differ.
 */
export async function loadPending(sql: Db, proofIds: string[]): Promise<PendingIntake[]> {
  const rows = await sql<(SharedRow & { packed: Buffer })[]>`
    select ${sharedColumns(sql)}, string_agg(uuid_send(i.proof_id) || i.salt || i.request_hash
      || int4send(length(i.request)) || i.request, '') as packed
    from svc.intake_pending p
    join svc.intake i using (proof_id)
    join svc.tenant t using (tenant_no)
    where p.proof_id = any(${arrayOf(proofIds)}::uuid[])
    group by i.tenant_no, t.tenant_id, i.lane, i.environment, i.accepted_at, i.policy_digest,
      i.fixture_hash, i.validity`;
  return rows.flatMap(unpackPending).sort((a, b) => (a.proofId < b.proofId ? -1 : 1));
}

const HEAD_BYTES = 16 + 32 + 32 + 4;

function unpackPending({ packed, ...row }: SharedRow & { packed: Buffer }): PendingIntake[] {
  const shared = sharedPins(row);
  const found: PendingIntake[] = [];
  for (let at = 0; at < packed.length;) {
    const end = at + HEAD_BYTES + packed.readInt32BE(at + HEAD_BYTES - 4);
    found.push({
      ...shared,
      proofId: packed.toString('hex', at, at + 16),
      salt: packed.subarray(at + 16, at + 48),
      requestHash: packed.subarray(at + 48, at + 80),
      request: packed.subarray(at + HEAD_BYTES, end),
    });
    at = end;
  }
  return found;
}

/** The batch of an admission, and how many of its items the admission answers. */
export interface BatchRef {
  batchId: string;
  items: number;
}

/**
 * Claims pending admissions in this transaction, and returns the batch of each. Only one transaction
 * can commit the claim, so an admission gets one outcome. Outside a transaction, where a claim would
 * lose the admission, it claims none.
 *
 * An admission accepted in the future, by up to a day, stays pending until that time: the database
 * clock was set back, or a standby with another clock was promoted. The gates reject later times.
 */
export async function claimPending(
  tx: Transaction,
  proofIds: string[],
): Promise<Map<string, BatchRef | null>> {
  // The setting lasts as long as the transaction: outside one, the claim does not see it.
  const allowing = tx`select set_config('svc.claims', 'on', true)`;
  // Grouped by batch, because admissions of one batch differ only in their ids.
  const claiming = tx<{ ids: string; batchId: string | null; items: number }[]>`
    with claimed as (
      delete from svc.intake_pending where proof_id = any(${arrayOf(proofIds)}::uuid[])
        and current_setting('svc.claims', true) = 'on'
        and (accepted_at <= (select clock_timestamp() + interval '1 second')
          or accepted_at > (select clock_timestamp() + interval '1 day'))
      returning proof_id, batch_id, batch_items)
    select ${packIds(tx)} as ids, batch_id as "batchId", batch_items as items from claimed
    group by batch_id, batch_items`;
  const [, rows] = await pipeline(allowing, claiming);
  const claimed = new Map<string, BatchRef | null>();
  for (const { ids, batchId, items } of rows) {
    const share = batchId === null ? null : { batchId: batchIdOf(batchId), items };
    for (const proofId of unpackIds(ids)) claimed.set(proofId, share);
  }
  return claimed;
}

const packIds = (tx: Db) => tx`encode(string_agg(uuid_send(proof_id), ''), 'hex')`;

const ID_LENGTH = 32;

function unpackIds(ids: string): string[] {
  return Array.from({ length: ids.length / ID_LENGTH }, (_, i) =>
    ids.slice(i * ID_LENGTH, (i + 1) * ID_LENGTH),
  );
}

export interface Gate {
  allowlisted: boolean;
  environmentOpen: boolean;
  /** The caller's API key is not revoked; its expiry since acceptance does not matter. */
  keyHolds: boolean;
  /** The environment is the tenant's, the acceptance time has passed, and the policy was active then. */
  pinsHold: boolean;
}

/**
 * Reads the gates of admissions, by proof id, and checks the pinned columns: once for all admissions
 * of a tenant, key, environment, policy and time.
 */
export async function gatesOf(tx: Db, proofIds: string[]): Promise<Map<string, Gate>> {
  const rows = await tx<(Gate & { ids: string })[]>`
    select i.ids, t.allowlisted, l.open as "environmentOpen",
      i.key_no is null or exists (select from svc.api_key k where k.key_no = i.key_no
        and k.tenant_no = i.tenant_no and k.revoked_at is null) as "keyHolds",
      i.environment = t.environment
        and i.accepted_at <= clock_timestamp() + interval '1 second'
        and exists (select from svc.policy_activation a
          where a.digest = i.policy_digest and a.active_from <= i.accepted_at) as "pinsHold"
    from (select tenant_no, key_no, environment, policy_digest, accepted_at, ${packIds(tx)} as ids
      from svc.intake where proof_id = any(${arrayOf(proofIds)}::uuid[])
      group by tenant_no, key_no, environment, policy_digest, accepted_at) i
    join svc.tenant t using (tenant_no)
    join svc.lane l on l.environment = t.environment`;
  return new Map(
    rows.flatMap(({ ids, ...gate }) => unpackIds(ids).map((proofId) => [proofId, gate] as const)),
  );
}

/** Rejects claimed admissions and releases their deduplication keys. */
export async function refuse(
  tx: Transaction,
  refusals: { proofId: string; code: string; detail: string }[],
): Promise<void> {
  if (refusals.length === 0) return;
  const ids = refusals.map(({ proofId }) => proofId);
  await tx`
    insert into svc.refusal (proof_id, code, detail)
    select * from unnest(${ids}::uuid[], ${refusals.map(({ code }) => code)}::text[],
      ${refusals.map(({ detail }) => detail)}::text[])`;
  await tx`update svc.intake set refused = true where proof_id = any(${ids}::uuid[])`;
}

/** A policy input: its RFC 8785 text, and the SHA-256 of that in lower-case hex. */
export interface NewInput {
  text: string;
  hash: string;
}

/** Stores each distinct input once, because equal inputs are common. */
export async function storeInputs(tx: Transaction, given: readonly NewInput[]): Promise<void> {
  const inputs = [...new Map(given.map(({ hash, text }) => [hash, text]))];
  if (inputs.length === 0) return;
  await tx`
    insert into svc.policy_input ${tx(
      inputs.map(([hash, text]) => ({
        input_hash: Buffer.from(hash, 'hex'),
        input: Buffer.from(text),
      })),
    )} on conflict do nothing`;
}

export async function readPolicyInput(sql: Db, hash: Uint8Array): Promise<JsonValue | null> {
  const [row] = await sql<{ input: Buffer }[]>`
    select input from svc.policy_input where input_hash = ${hash}`;
  return row === undefined ? null : (JSON.parse(row.input.toString('utf8')) as JsonValue);
}
