import { expect } from 'vitest';
import { verdictsForLeaves } from '#sql/log/verdicts';
import { VERDICT_LOCK } from '#workers/verify/context';
import type { TestDatabase } from './database.js';
import type { TestRegistry } from './registry.js';

export const byId = `replace(proof_id::text, '-', '') = $1`;

/** Statements that damage what is stored of the proof whose id they are given. */
export const FLIP = {
  aep: `update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1) where ${byId}`,
  signature: `update svc.proof set signature = set_byte(signature, 5, get_byte(signature, 5) # 1) where ${byId}`,
  request: `update svc.intake set request = set_byte(request, 9, get_byte(request, 9) # 1) where ${byId}`,
  aep_hash: `update svc.log_entry set aep_hash = set_byte(aep_hash, 0, get_byte(aep_hash, 0) # 1) where ${byId}`,
  effect: `update svc.proof set effect = case effect when 'ADMIT' then 'DENY' else 'ADMIT' end where ${byId}`,
  environment: `update svc.proof set environment = case environment when 'live' then 'sandbox' else 'live' end where ${byId}`,
  key_id: `update svc.proof set key_id = reverse(key_id) where ${byId}`,
  tenant: `update svc.proof set tenant_no = tenant_no # 1024 where ${byId}`,
  'tenant of the intake': `update svc.intake set tenant_no = tenant_no # 1024 where ${byId}`,
  is_outcome: `update svc.proof set is_outcome = not is_outcome where ${byId}`,
  lane: `update svc.proof set lane = 3 - lane where ${byId}`,
  action: `update svc.proof set action = reverse(action) where ${byId}`,
  intent_id: `update svc.proof set intent_id = reverse(intent_id) where ${byId}`,
  time: `update svc.log_entry set at = at + interval '1 second' where ${byId}`,
};

/** What somebody can do who has the database itself, and what the verifier makes of it. */
export interface Tampering {
  leafOf: (id: string) => Promise<number>;
  /** Of the verdict in force on a proof's leaf. */
  outcomeOf: (id: string) => Promise<string | undefined>;
  /** Changes stored bytes as a superuser with every trigger off. */
  tamper: (statement: string, parameters: Buffer[] | string[]) => Promise<void>;
  /** Holds the lock of whoever writes verdicts. */
  holdVerdictLock: () => Promise<{ release(): Promise<void> }>;
}

/** Each call is about the database that there is by then. */
export function tampering(current: () => { db: TestDatabase; registry: TestRegistry }): Tampering {
  const leafOf = async (id: string): Promise<number> => {
    const [proof] = await current().db.sql<{ leaf_index: number }[]>`
      select leaf_index from svc.proof where proof_id = ${id}::uuid`;
    if (proof === undefined) throw new Error(`no proof ${id}`);
    return proof.leaf_index;
  };
  return {
    leafOf,
    outcomeOf: async (id) => {
      const leaf = await leafOf(id);
      return (await verdictsForLeaves(current().registry.verify.sql, [leaf])).get(leaf)?.outcome;
    },
    tamper: async (statement, parameters) => {
      await current().db.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        const rows = await tx.unsafe(statement, parameters);
        expect(rows.count).toBeGreaterThan(0);
      });
    },
    holdVerdictLock: async () => {
      const connection = await current().db.sql.reserve();
      await connection`select pg_advisory_lock(${VERDICT_LOCK})`;
      return {
        release: async () => {
          await connection`select pg_advisory_unlock(${VERDICT_LOCK})`;
          connection.release();
        },
      };
    },
  };
}
