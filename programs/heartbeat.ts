import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ProgramContext } from '#runtime/process/lifecycle';
import type { Readiness } from '#runtime/ops/health';
import type { Pool } from '#sql/db/transaction';
import { recordHeartbeat } from '#sql/ops/heartbeats';

const EVERY_MS = 2_000;

/**
 * Records every two seconds that this process lives and how ready it is, until the program stops. The
 * first heartbeat is recorded when this resolves.
 *
 * @returns records one more at once; never rejects
 */
export async function startHeartbeat(
  sql: Pool,
  find: () => Readiness | Promise<Readiness>,
  { signal, log }: Pick<ProgramContext, 'signal' | 'log'>,
): Promise<() => Promise<void>> {
  const instance = randomUUID();
  let isFailing = false;
  // One after the other: a report that was found earlier never replaces a later one.
  let last = Promise.resolve();
  const beat = (): Promise<void> => (last = last.then(record));
  const record = async (): Promise<void> => {
    try {
      await recordHeartbeat(sql, instance, (await find()).says);
      isFailing = false;
    } catch (error) {
      if (!isFailing && !signal.aborted) log.warn({ err: error }, 'no heartbeat could be recorded');
      isFailing = true;
    }
  };
  const keepBeating = async (): Promise<void> => {
    while (!signal.aborted) {
      await sleep(EVERY_MS, undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) await beat();
    }
  };
  await beat();
  void keepBeating();
  return beat;
}
