import type { Db, Pool } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';
import { fromUuid, toUuid } from '../db/columns.js';
import { unpackAep } from '../proofs/packed-aep.js';
import { readAsTenants, type OwnId } from '../db/tenant-scope.js';

/** The outcome of an accepted admission. */
export type Settlement =
  | {
      state: 'proved';
      lane: 1 | 2;
      effect: 'ADMIT' | 'DENY';
      requestHash: Buffer;
      leafIndex: number;
      /** The deciding policies of a denial, sorted. */
      reasons: string[];
      policyDigest: Buffer;
      acceptedAt: number;
    }
  | { state: 'refused'; code: string; detail: string }
  /** Admitted or denied, and its payload has been erased. */
  | { state: 'erased' };

/** An intake row joined with its outcome. */
export interface SettlementRow {
  proof_id: string;
  lane: 1 | 2;
  effect: 'ADMIT' | 'DENY' | null;
  /** Null once erased. */
  request_hash: Buffer | null;
  leaf_index: string | number | null;
  /** Only for a denial, for its reasons. */
  aep: Buffer | null;
  policy_digest: Buffer;
  accepted_at: Date;
  code: string | null;
  detail: string | null;
}

/** The deciding policies of an AEP, sorted; empty without an AEP. */
function reasonsOf(aep: Buffer | null): string[] {
  if (aep === null) return [];
  const parsed = JSON.parse(unpackAep(aep).toString('utf8')) as {
    decision?: { reasons?: string[] };
  };
  return parsed.decision?.reasons ?? [];
}

/** Null while it is pending. */
export function settlementOf(row: SettlementRow): Settlement | null {
  if (row.effect !== null) {
    if (row.request_hash === null) return { state: 'erased' };
    return {
      state: 'proved',
      lane: row.lane,
      effect: row.effect,
      requestHash: row.request_hash,
      leafIndex: Number(row.leaf_index),
      reasons: row.effect === 'DENY' ? reasonsOf(row.aep) : [],
      policyDigest: row.policy_digest,
      acceptedAt: row.accepted_at.getTime(),
    };
  }
  if (row.code !== null) return { state: 'refused', code: row.code, detail: row.detail ?? '' };
  return null;
}

/** The outcomes of `admissions` by proof id. Pending admissions and those of other tenants are absent. */
export async function readOutcomes(
  sql: Pool,
  admissions: readonly OwnId[],
): Promise<Map<string, Settlement>> {
  const rows = await readSettlements(sql, admissions);
  return new Map(
    rows.flatMap((row) => {
      const settlement = settlementOf(row);
      return settlement === null ? [] : [[fromUuid(row.proof_id), settlement]];
    }),
  );
}

/** One row for each of `admissions` that was accepted, with or without an outcome. */
function readSettlements(sql: Pool, admissions: readonly OwnId[]): Promise<SettlementRow[]> {
  const tenants = admissions.map(({ tenantNo }) => tenantNo);
  // Join on proof_id only: a predicate on tenant_no makes the cached plan scan every proof of the tenant.
  return readAsTenants(
    sql,
    tenants,
    (tx) => tx<SettlementRow[]>`
      select i.proof_id::text, i.lane, p.effect, i.request_hash, p.leaf_index,
        case when p.effect = 'DENY' then p.aep end as aep, i.policy_digest, i.accepted_at, r.code,
        r.detail
      from unnest(${admissions.map(({ id }) => toUuid(id))}::uuid[], ${tenants}::int[])
        as asked(proof_id, tenant_no)
      join svc.intake i using (proof_id, tenant_no)
      left join svc.proof p on p.proof_id = i.proof_id and p.tenant_no + 0 = i.tenant_no
      left join svc.refusal r on r.proof_id = i.proof_id`,
  );
}

/** The state of one of the tenant's admissions; null when the tenant has no such admission. */
export async function admissionState(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<'pending' | Settlement | null> {
  const [row] = await readSettlements(sql, [{ tenantNo, id: proofId }]);
  return row === undefined ? null : (settlementOf(row) ?? 'pending');
}

/** A position in the pending admissions, oldest first. */
export interface PendingPlace {
  acceptedAt: Date;
  proofId: string;
}

/**
 * Admissions outside batches that were accepted more than `ms` milliseconds ago, oldest first, after
 * `after`: the position lets callers skip admissions that cannot be committed. Batches have leases.
 */
export function pendingOlderThan(
  sql: Db,
  ms: number,
  limit: number,
  after: PendingPlace | null = null,
): Promise<PendingPlace[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ proof_id: string; accepted_at: Date }[]>`
      select proof_id::text, accepted_at from svc.intake_pending
      where batch_id is null and accepted_at < now() - ${`${ms} milliseconds`}::interval
        and (accepted_at, proof_id) > (${after?.acceptedAt ?? new Date(0)}::timestamptz,
          ${toUuid(after?.proofId ?? '0'.repeat(32))}::uuid)
      order by accepted_at, proof_id limit ${limit}`;
    return rows.map((row) => ({ acceptedAt: row.accepted_at, proofId: fromUuid(row.proof_id) }));
  });
}

/** How many admissions of all tenants are pending; counting stops at `most`. */
export function pendingDepth(sql: Db, most: number): Promise<number> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ depth: number }[]>`select svc.pending_depth(${most}) as depth`;
    return row?.depth ?? 0;
  });
}
