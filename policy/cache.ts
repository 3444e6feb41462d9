import type { Db } from '#sql/db/transaction';
import { readPolicySet } from '#sql/admissions/policies';
import { openPolicySet } from './check.js';
import type { PolicyEngine } from './decide.js';
import { PolicySetError } from './policy-set.js';

/** Prepared policy sets by digest. Policy sets are immutable, so entries never expire. */
export function policyCache(sql: Db): (digest: Buffer) => Promise<PolicyEngine> {
  const engines = new Map<string, Promise<PolicyEngine>>();
  return (digest) => {
    const name = digest.toString('hex');
    const known = engines.get(name);
    if (known !== undefined) return known;
    const engine = readPolicySet(sql, digest).then((stored) => {
      if (stored !== null) return openPolicySet(stored);
      throw new PolicySetError(`policy set ${name} is not stored`);
    });
    engines.set(name, engine);
    // Failures are not cached: the database may be unavailable for a moment.
    engine.catch(() => engines.delete(name));
    return engine;
  };
}
