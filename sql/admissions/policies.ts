import { AdministrationError } from '../tenants/audit.js';
import type { Db } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';

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
  /** One description per policy id, shown with a denial. */
  sentences: Record<string, string>;
}

/** A policy set by digest, or null. Sets are never deleted, so that replay can use the original. */
export function readPolicySet(sql: Db, digest: Uint8Array): Promise<StoredPolicySet | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ digest: Buffer; manifest: string; files: PolicyFiles }[]>`
      select digest, manifest, files from svc.policy_set where digest = ${Buffer.from(digest)}`;
    return row ?? null;
  });
}

/** The descriptions of a policy set, by policy id; empty for an unknown digest. */
export async function policyAnnotations(sql: Db, digest: Uint8Array): Promise<Map<string, string>> {
  const stored = await readPolicySet(sql, digest);
  return new Map(Object.entries(stored?.files.sentences ?? {}));
}

/** The digest in force, or null. */
export function activePolicy(sql: Db): Promise<Buffer | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ digest: Buffer }[]>`
      select digest from svc.policy_activation where active_from <= now()
      order by active_from desc, activation_id desc limit 1`;
    return row?.digest ?? null;
  });
}

/** Stores a set. @returns false when the digest is already stored */
export function storePolicySet(sql: Db, set: StoredPolicySet): Promise<boolean> {
  return mapDbErrors(async () => {
    const stored = await sql`
      insert into svc.policy_set (digest, manifest, files)
      values (${set.digest}, ${set.manifest}, ${sql.json(set.files as never)})
      on conflict do nothing`;
    return stored.count === 1;
  });
}

/**
 * Activates a set for admissions accepted from a time on, by default now, and returns that time.
 * Earlier decisions keep the set that was in force then.
 *
 * @throws AdministrationError when the time has passed
 */
export function activatePolicy(
  sql: Db,
  digest: Uint8Array,
  from: Date | null = null,
): Promise<Date> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ active_from: Date }[]>`
      insert into svc.policy_activation (digest, active_from)
      select ${Buffer.from(digest)}, coalesce(${from}::timestamptz,
        date_trunc('milliseconds', clock_timestamp()))
      where ${from}::timestamptz is null or ${from}::timestamptz > clock_timestamp()
      returning active_from`;
    if (row !== undefined) return row.active_from;
    throw new AdministrationError(
      `${from?.toISOString() ?? ''} has passed by the database clock: activating a policy must not change past decisions`,
    );
  });
}

export interface PolicyActivation {
  digest: Buffer;
  activeFrom: Date;
  /** The latest due activation is in force; earlier ones are over, later ones scheduled. */
  state: 'in force' | 'scheduled' | 'over';
}

/** Every activation, in order of their times. */
export function policyActivations(sql: Db): Promise<PolicyActivation[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ digest: Buffer; active_from: Date; due: boolean; latest: boolean }[]>`
      select digest, active_from, active_from <= now() as due,
        activation_id is not distinct from (select activation_id from svc.policy_activation
          where active_from <= now() order by active_from desc, activation_id desc limit 1) as latest
      from svc.policy_activation order by active_from, activation_id`;
    return rows.map(({ digest, active_from: activeFrom, due, latest }) => ({
      digest,
      activeFrom,
      state: !due ? 'scheduled' : latest ? 'in force' : 'over',
    }));
  });
}

/** Every stored set, oldest first. */
export function listPolicySets(sql: Db): Promise<(StoredPolicySet & { createdAt: Date })[]> {
  return mapDbErrors(
    () => sql<(StoredPolicySet & { createdAt: Date })[]>`
      select digest, manifest, files, created_at as "createdAt"
      from svc.policy_set order by created_at, digest`,
  );
}
