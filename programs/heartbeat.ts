import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ProgramContext } from '#runtime/process/lifecycle';
import type { Readiness } from '#runtime/ops/health';
import type { Pool } from '#sql/db/transaction';
import { recordHeartbeat } from '#sql/ops/heartbeats';

const EVERY_MS = 2_000;

/**
 * Records every two seconds that this process is alive and how ready it is, until the program
 * stops. Resolves after the first heartbeat.
 *
 * @returns records an additional heartbeat immediately; never rejects
 */
export async function startHeartbeat(
  sql: Pool,
  find: () => Readiness | Promise<Readiness>,
  { signal, log }: Pick<ProgramContext, 'signal' | 'log'>,
): Promise<() => Promise<void>> {
  const instance = randomUUID();
  let isFailing = false;
  // Serialized, so that an earlier report never replaces a later one.
  let last = Promise.resolve();
  const beat = (): Promise<void> => (last = last.then(record));
  const record = async (): Promise<void> => {
    try {
      await recordHeartbeat(sql, instance, (await find()).details);
      isFailing = false;
    } catch (error) {
      if (!isFailing && !signal.aborted)
        log.warn({ err: error }, 'heartbeat failed: admin status may report this program as down');
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
