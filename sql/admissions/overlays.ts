import { fromHex, toHex } from '#protocol/bytes';
import { firstRow, valueOf } from '../db/columns.js';
import { isNotCombined } from '../db/errors.js';
import { type ListPlace, pageAfter } from '../db/paging.js';
import { asTenants, type Db, type Pool, readAsTenants } from '../db/transaction.js';
import type { StoredPolicySet } from './policies.js';

/** An overlay combined with the operator's set `base`. */
export interface OverlaySet extends Omit<StoredPolicySet, 'files'> {
  base: Buffer;
  /** The policies and sentences that the base does not have, by id. */
  policies: Record<string, string>;
  sentences: Record<string, string>;
  /**
   * Ids of the overlay's rules that are not valid under the base; in the set, each of these rules forbids everything.
   */
  unfit: string[];
}

export interface OverlayRow {
  digest: Buffer;
  /** The rules by id, as canonical JSON, whose SHA-256 is the digest. */
  document: string;
  isActive: boolean;
  /** Ids of the rules that are not valid under the set in force; empty while the overlay is not active. */
  unfit: string[];
  createdAt: Date;
}

/** @returns null when the key `managing` may not store overlays; false when the tenant has `most` overlays */
export function storeOverlay(
  sql: Pool,
  tenantNo: number,
  managing: number,
  { digest, document }: Pick<OverlayRow, 'digest' | 'document'>,
  most: number,
): Promise<boolean | null> {
  return asTenants(sql, [tenantNo], (tx) =>
    valueOf(tx`select svc.store_overlay(${managing}, ${digest}, ${document}, ${most})`),
  );
}

/**
 * Activates an overlay of the tenant for admissions accepted from now on, or deactivates it.
 *
 * @param sets the overlay combined with each set in use; null to deactivate the overlay
 * @returns null when the key `managing` may not change overlays; false when `sets` lacks a set in use
 */
export function activateOverlay(
  sql: Pool,
  tenantNo: number,
  managing: number,
  digest: Buffer,
  sets: readonly OverlaySet[] | null,
): Promise<boolean | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [made] = await tx<[{ done: boolean }]>`
      select svc.activate_overlay(${managing}, ${digest}, ${sets && recordsOf(sets)}::text::jsonb) as done`;
    return made.done ? true : null;
  }).catch((error: unknown) => {
    if (isNotCombined(error)) return false;
    throw error;
  });
}

const recordsOf = (sets: readonly OverlaySet[]): string =>
  JSON.stringify(
    sets.map(({ base, digest, ...set }) => ({ ...set, base: toHex(base), digest: toHex(digest) })),
  );

/** The tenant's overlays after `after`, newest first; only the overlay with `digest` unless `digest` is null. */
export function listOverlays(
  sql: Pool,
  tenantNo: number,
  limit: number,
  after: ListPlace | null,
  digest: Buffer | null = null,
): Promise<OverlayRow[]> {
  return readAsTenants(
    sql,
    [tenantNo],
    (tx) => tx<OverlayRow[]>`
      select o.digest, o.document, o.created_at as "createdAt",
        coalesce(t.overlay = o.digest, false) as "isActive", coalesce(s.unfit, '{}') as unfit
      from svc.overlay o join svc.tenant t using (tenant_no)
      left join svc.overlay_set s on s.tenant_no = o.tenant_no and s.overlay = o.digest
        and s.overlay = t.overlay and s.base = (select digest from svc.policy_activation
          where active_from <= now() order by active_from desc, activation_id desc limit 1)
      where o.tenant_no = ${tenantNo} and (${digest}::bytea is null or o.digest = ${digest})
        ${pageAfter(tx, ['o.created_at', 'o.digest'], limit, after, fromHex)}`,
  );
}

/** The operator's sets that may decide an admission now or later. */
export function policiesInUse(sql: Db): Promise<StoredPolicySet[]> {
  return sql<StoredPolicySet[]>`
    select digest, manifest, files from svc.policies_in_use() as digest
    join svc.policy_set using (digest)`;
}

export interface ActiveOverlay extends Pick<OverlayRow, 'digest' | 'document'> {
  tenantNo: number;
  tenantId: string;
}

export function activeOverlays(sql: Db): Promise<ActiveOverlay[]> {
  return sql<ActiveOverlay[]>`
    select t.tenant_no as "tenantNo", t.tenant_id as "tenantId", o.digest, o.document
    from svc.tenant t join svc.overlay o on o.tenant_no = t.tenant_no and o.digest = t.overlay
    order by t.tenant_id`;
}

/** The overlay with which a set is combined; null for a set of the operator alone. */
export const overlayIn = (sql: Db, digest: Uint8Array) =>
  firstRow(sql<Pick<OverlayRow, 'document'>[]>`
    select o.document from svc.overlay_set s
    join svc.overlay o on o.tenant_no = s.tenant_no and o.digest = s.overlay
    where s.digest = ${digest} limit 1`);

export async function storeOverlaySet(
  sql: Db,
  { tenantNo, digest }: ActiveOverlay,
  set: OverlaySet,
): Promise<void> {
  const { base, manifest, policies, sentences, unfit } = set;
  await sql`
    insert into svc.overlay_set (tenant_no, overlay, base, digest, manifest, policies, sentences, unfit)
    values (${tenantNo}, ${digest}, ${base}, ${set.digest}, ${manifest}, ${sql.json(policies)},
      ${sql.json(sentences)}, ${unfit}::text[])
    on conflict do nothing`;
}
