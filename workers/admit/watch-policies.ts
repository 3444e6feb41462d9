import { PolicySetError } from '#policy/policy-set';
import type { Logger } from '#runtime/process/log';
import type { Db } from '#sql/db/transaction';
import { policyActivations } from '#sql/admissions/policies';
import { repeat } from '../requeue.js';
import type { AdmitContext } from './context.js';

export interface PolicyWatch {
  sql: Db;
  log: Logger;
  policy: AdmitContext['policy'];
}

/**
 * Loads the active and scheduled policy sets, so that an unusable one is reported before admissions
 * are deferred, and a usable one is cached when it activates. Returns the unusable digests.
 */
export async function checkPolicies({ sql, log, policy }: PolicyWatch): Promise<string[]> {
  const unusable: string[] = [];
  for (const { digest, activeFrom, state } of await policyActivations(sql)) {
    if (state === 'over') continue;
    try {
      await policy(digest);
    } catch (error) {
      if (!(error instanceof PolicySetError)) throw error;
      const name = digest.toString('hex');
      unusable.push(name);
      log.error(
        { digest: name, state, active_from: activeFrom, reason: error.message },
        'policy watch: this worker cannot run a policy set; admissions under it are deferred',
      );
    }
  }
  return unusable;
}

const EVERY_MS = 30_000;

/** Checks now and at an interval until the signal. Never rejects. */
export function watchPolicies(watch: PolicyWatch, signal: AbortSignal): Promise<void> {
  const check = async (): Promise<void> => void (await checkPolicies(watch));
  return repeat(EVERY_MS, signal, check, (error) => {
    watch.log.warn({ err: error }, 'policy watch: the check failed; it is retried');
  });
}
