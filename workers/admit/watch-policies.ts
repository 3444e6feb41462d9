import { setTimeout as sleep } from 'node:timers/promises';
import { PolicySetError } from '#policy/policy-set';
import type { Logger } from '#runtime/process/log';
import type { Db } from '#sql/db/transaction';
import { policyActivations } from '#sql/admissions/policies';
import type { AdmitContext } from './context.js';

export interface PolicyWatch {
  sql: Db;
  log: Logger;
  policy: AdmitContext['policy'];
}

/**
 * Looks whether this process can run the policy sets that are in force or will be. One that it
 * cannot run holds back everything accepted under it, so that is said before anybody waits; one
 * that it can run is prepared by the time it is needed. Returns the digests that it cannot run.
 */
export async function checkPolicies({ sql, log, policy }: PolicyWatch): Promise<string[]> {
  const unfit: string[] = [];
  for (const { digest, activeFrom, state } of await policyActivations(sql)) {
    if (state === 'over') continue;
    try {
      await policy(digest);
    } catch (error) {
      if (!(error instanceof PolicySetError)) throw error;
      const name = digest.toString('hex');
      unfit.push(name);
      log.error(
        { digest: name, state, active_from: activeFrom, reason: error.message },
        'ALARM: this worker cannot run a policy set: what is accepted under it waits',
      );
    }
  }
  return unfit;
}

const EVERY_MS = 30_000;

/** Looks now, and again and again until the signal. Never rejects. */
export async function watchPolicies(watch: PolicyWatch, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await checkPolicies(watch);
    } catch (error) {
      watch.log.warn({ err: error }, 'the policy sets could not be looked at');
    }
    await sleep(EVERY_MS, undefined, { signal }).catch(() => null);
  }
}
