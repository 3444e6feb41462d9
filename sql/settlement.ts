import type { Db } from './db.js';
import { asking } from './errors.js';
import { fromUuid, toUuid } from './ids.js';

/** What became of an accepted admission. */
export type Settlement =
  | {
      state: 'proved';
      lane: 1 | 2;
      effect: 'ADMIT' | 'DENY';
      requestHash: Buffer;
      leafIndex: number;
      /** The deciding policies, sorted; empty once the payload has been erased. */
      reasons: string[];
      policyDigest: Buffer;
      acceptedAt: number;
    }
  | { state: 'refused'; code: string; detail: string };

interface SettlementRow {
  proof_id: string;
  lane: 1 | 2;
  effect: 'ADMIT' | 'DENY' | null;
  request_hash: Buffer;
  leaf_index: string | number;
  aep: Buffer | null;
  policy_digest: Buffer;
  accepted_at: Date;
  code: string | null;
  detail: string | null;
}

function reasonsOf(aep: Buffer | null): string[] {
  if (aep === null) return [];
  const parsed = JSON.parse(aep.toString('utf8')) as { decision?: { reasons?: string[] } };
  return parsed.decision?.reasons ?? [];
}

function settlementOf(row: SettlementRow): Settlement | null {
  if (row.effect !== null) {
    return {
      state: 'proved',
      lane: row.lane,
      effect: row.effect,
      requestHash: row.request_hash,
      leafIndex: Number(row.leaf_index),
      reasons: reasonsOf(row.aep),
      policyDigest: row.policy_digest,
      acceptedAt: row.accepted_at.getTime(),
    };
  }
  if (row.code !== null) return { state: 'refused', code: row.code, detail: row.detail ?? '' };
  return null;
}

/** The settlements of those of `proofIds` that are settled; the others are still pending. */
export function settledIn(sql: Db, proofIds: string[]): Promise<Map<string, Settlement>> {
  return asking(async () => {
    const rows = await sql<SettlementRow[]>`
      select i.proof_id::text, i.lane, p.effect, i.request_hash, p.leaf_index, p.aep, i.policy_digest,
        i.accepted_at, r.code, r.detail
      from svc.intake i
      left join svc.proof p using (proof_id)
      left join svc.refusal r using (proof_id)
      where i.proof_id = any(${proofIds.map(toUuid)}::uuid[])`;
    const settled = new Map<string, Settlement>();
    for (const row of rows) {
      const settlement = settlementOf(row);
      if (settlement !== null) settled.set(fromUuid(row.proof_id), settlement);
    }
    return settled;
  });
}

/** How one of the tenant's admissions stands; null when the tenant has none of that id. */
export function admissionState(
  sql: Db,
  tenantNo: number,
  proofId: string,
): Promise<'pending' | Settlement | null> {
  return asking(async () => {
    const [own] = await sql`
      select from svc.intake where proof_id = ${toUuid(proofId)}::uuid and tenant_no = ${tenantNo}`;
    if (own === undefined) return null;
    return (await settledIn(sql, [proofId])).get(proofId) ?? 'pending';
  });
}

/** A place among the pending, in the order of their age. */
export interface PendingPlace {
  acceptedAt: Date;
  proofId: string;
}

/**
 * Admissions that have waited longer than `ms` milliseconds, oldest first, from `after` on: what
 * cannot be settled must not stand in front of what can.
 */
export function pendingOlderThan(
  sql: Db,
  ms: number,
  limit: number,
  after: PendingPlace | null = null,
): Promise<PendingPlace[]> {
  return asking(async () => {
    const rows = await sql<{ proof_id: string; accepted_at: Date }[]>`
      select proof_id::text, accepted_at from svc.intake_pending
      where accepted_at < now() - ${`${ms} milliseconds`}::interval
        and (accepted_at, proof_id) > (${after?.acceptedAt ?? new Date(0)}::timestamptz,
          ${toUuid(after?.proofId ?? '0'.repeat(32))}::uuid)
      order by accepted_at, proof_id limit ${limit}`;
    return rows.map((row) => ({ acceptedAt: row.accepted_at, proofId: fromUuid(row.proof_id) }));
  });
}

/** How many admissions are accepted and not yet settled. */
export function pendingCount(sql: Db): Promise<number> {
  return asking(async () => {
    const [row] = await sql<{ count: number }[]>`
      select count(*)::int as count from svc.intake_pending`;
    return row?.count ?? 0;
  });
}
