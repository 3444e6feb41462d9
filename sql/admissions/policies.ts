import type { Counters } from '#protocol/policy-input';
import { AdministrationError } from '../tenants/audit.js';
import { firstRow } from '../db/columns.js';
import { type Db, type Pool, readAsTenants } from '../db/transaction.js';

/** A stored policy set: Cedar texts by policy id, the schema and the descriptions. */
export interface StoredPolicySet {
  digest: Buffer;
  /** The canonical manifest whose SHA-256 is the digest. */
  manifest: string;
  files: PolicyFiles;
}

export interface PolicyFiles {
  schema: string;
  policies: Record<string, string>;
  /** One description per policy id, shown with a denial or a required approval. */
  sentences: Record<string, string>;
  /** Counters by name; absent when the set declares none. */
  counters?: Counters;
}

/**
 * The policy set with this digest, the operator's own or combined with an overlay; null when
 * unknown. Sets are never deleted, so that replay can use the original.
 */
export const readPolicySet = (sql: Db, digest: Uint8Array): Promise<StoredPolicySet | null> =>
  firstRow(selectPolicySet(sql, digest));

/** Like `readPolicySet`, for a role that sees only the sets of the operator and of this tenant. */
export const readTenantPolicySet = (
  sql: Pool,
  tenantNo: number,
  digest: Uint8Array,
): Promise<StoredPolicySet | null> =>
  firstRow(
    readAsTenants(sql, [tenantNo], (tx) =>
      selectPolicySet(tx, digest, tx`and s.tenant_no = ${tenantNo}`),
    ),
  );

// The operator's policies come last, so that no policy of an overlay replaces one of them.
const selectPolicySet = (sql: Db, digest: Uint8Array, condition = sql``) => sql<StoredPolicySet[]>`
  select digest, manifest, files from svc.policy_set where digest = ${digest}
  union all
  (select s.digest, s.manifest, b.files || jsonb_build_object(
      'policies', s.policies || (b.files -> 'policies'),
      'sentences', s.sentences || (b.files -> 'sentences'))
    from svc.overlay_set s join svc.policy_set b on b.digest = s.base
    where s.digest = ${digest} ${condition} limit 1)
  limit 1`;

/** Maps each policy id of the set to its `@sentence`. Loads no policy texts, because clients call this often. */
export async function policyAnnotations(
  sql: Pool,
  tenantNo: number,
  digest: Uint8Array,
): Promise<Map<string, string>> {
  const [row] = await readAsTenants(
    sql,
    [tenantNo],
    (tx) => tx<Pick<PolicyFiles, 'sentences'>[]>`
      select files -> 'sentences' as sentences from svc.policy_set where digest = ${digest}
      union all
      (select s.sentences || (b.files -> 'sentences')
        from svc.overlay_set s join svc.policy_set b on b.digest = s.base
        where s.digest = ${digest} and s.tenant_no = ${tenantNo} limit 1)
      limit 1`,
  );
  return new Map(Object.entries(row?.sentences ?? {}));
}

export async function activePolicy(sql: Db): Promise<Buffer | null> {
  const [row] = await sql<{ digest: Buffer }[]>`
    select digest from svc.policy_activation where active_from <= now()
    order by active_from desc, activation_id desc limit 1`;
  return row?.digest ?? null;
}

/** Stores a set. @returns false when the digest is already stored */
export async function storePolicySet(sql: Db, set: StoredPolicySet): Promise<boolean> {
  const stored = await sql`
    insert into svc.policy_set (digest, manifest, files)
    values (${set.digest}, ${set.manifest}, ${sql.json(set.files as never)})
    on conflict do nothing`;
  return stored.count === 1;
}

/**
 * Activates a set for admissions accepted at or after a time, by default now. Returns this time.
 * Earlier decisions keep the set that was in force then.
 *
 * @throws AdministrationError when the time has passed
 */
export async function activatePolicy(
  sql: Db,
  digest: Uint8Array,
  from: Date | null = null,
): Promise<Date> {
  const [row] = await sql<{ at: Date }[]>`
    insert into svc.policy_activation (digest, active_from)
    select ${digest}::bytea, coalesce(${from}::timestamptz,
      date_trunc('milliseconds', clock_timestamp()))
    where ${from}::timestamptz is null or ${from}::timestamptz > clock_timestamp()
    returning active_from as at`;
  if (row !== undefined) return row.at;
  throw new AdministrationError(
    `${from?.toISOString() ?? ''} is in the past by the database clock: activating a policy must not change past decisions`,
  );
}

export interface PolicyActivation {
  digest: Buffer;
  activeFrom: Date;
  /** `in force` is the latest due activation; earlier activations are `over`, later activations `scheduled`. */
  state: 'in force' | 'scheduled' | 'over';
}

export function policyActivations(sql: Db): Promise<PolicyActivation[]> {
  return sql<PolicyActivation[]>`
    select digest, active_from as "activeFrom", case when active_from > now() then 'scheduled'
      when activation_id = (select activation_id from svc.policy_activation
        where active_from <= now() order by active_from desc, activation_id desc limit 1) then 'in force'
      else 'over' end as state
    from svc.policy_activation order by active_from, activation_id`;
}

export function listPolicySets(sql: Db): Promise<(StoredPolicySet & { createdAt: Date })[]> {
  return sql<(StoredPolicySet & { createdAt: Date })[]>`
    select digest, manifest, files, created_at as "createdAt"
    from svc.policy_set order by created_at, digest`;
}
