import type { Db } from './db.js';
import { asking } from './errors.js';

/** A policy set as it was stored: Cedar texts by policy id, its schema, its sentences for people. */
export interface StoredPolicySet {
  digest: Buffer;
  /** The canonical manifest whose SHA-256 is the digest. */
  manifest: string;
  files: PolicyFiles;
}

export interface PolicyFiles {
  schema: string;
  policies: Record<string, string>;
  /** One sentence for people per policy id, shown with a denial. */
  sentences: Record<string, string>;
}

/** A policy set by digest, or null. Sets are kept for ever, so that replay runs the one that decided. */
export function readPolicySet(sql: Db, digest: Uint8Array): Promise<StoredPolicySet | null> {
  return asking(async () => {
    const [row] = await sql<{ digest: Buffer; manifest: string; files: PolicyFiles }[]>`
      select digest, manifest, files from svc.policy_set where digest = ${Buffer.from(digest)}`;
    return row ?? null;
  });
}

/** The sentences for people of a policy set, by policy id; empty for an unknown digest. */
export async function policyAnnotations(sql: Db, digest: Uint8Array): Promise<Map<string, string>> {
  const stored = await readPolicySet(sql, digest);
  return new Map(Object.entries(stored?.files.sentences ?? {}));
}

/** The digest in force now, or null. */
export function activePolicy(sql: Db): Promise<Buffer | null> {
  return asking(async () => {
    const [row] = await sql<{ digest: Buffer }[]>`
      select digest from svc.policy_activation where active_from <= now()
      order by active_from desc, activation_id desc limit 1`;
    return row?.digest ?? null;
  });
}

/** Stores a set; storing the same digest again changes nothing. */
export function storePolicySet(sql: Db, set: StoredPolicySet): Promise<void> {
  return asking(async () => {
    await sql`
      insert into svc.policy_set (digest, manifest, files)
      values (${set.digest}, ${set.manifest}, ${sql.json(set.files as never)})
      on conflict do nothing`;
  });
}

export function activatePolicy(sql: Db, digest: Uint8Array): Promise<void> {
  return asking(async () => {
    await sql`insert into svc.policy_activation (digest) values (${Buffer.from(digest)})`;
  });
}
