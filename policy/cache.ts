import type { Db } from '#sql/db/transaction';
import { readPolicySet } from '#sql/admissions/policies';
import { requireApplicable } from './check.js';
import { preparePolicyEngine, type PolicyEngine } from './decide.js';
import { PolicySetError } from './policy-set.js';

/** Prepared policy sets by digest. Policy sets are immutable, so entries never expire. */
export function policyCache(sql: Db): (digest: Buffer) => Promise<PolicyEngine> {
  const engines = new Map<string, Promise<PolicyEngine>>();
  return (digest) => {
    const name = digest.toString('hex');
    const known = engines.get(name);
    if (known !== undefined) return known;
    const engine = prepare(sql, digest);
    engines.set(name, engine);
    // Failures are not cached: the database may be unavailable for a moment.
    engine.catch(() => engines.delete(name));
    return engine;
  };
}

async function prepare(sql: Db, digest: Buffer): Promise<PolicyEngine> {
  const stored = await readPolicySet(sql, digest);
  if (stored === null)
    throw new PolicySetError(`policy set ${digest.toString('hex')} is not stored`);
  const engine = await preparePolicyEngine(stored);
  await requireApplicable(stored.files);
  return engine;
}
