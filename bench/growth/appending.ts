import type { Pool } from '#sql/db/transaction';
import type { AppenderMessage, AppenderTask, AppendSome } from './appender-task.js';
import { startChild } from '../service/child.js';
import { cpuSecondsBetween, cpuTimesOf } from '../figures/cpu-time.js';
import { whoAsks } from '../filling/filling.js';
import { builtFile } from '../service/programs.js';
import type { BenchRegistry } from '../service/registry.js';

/** A process that appends to a registry when it is told to. */
export interface Appending {
  /**
   * Appends as many proofs.
   *
   * @returns microseconds of CPU time for each, from the engine's accepting it to the worker's commit,
   *   PostgreSQL's among them
   */
  append(count: number): Promise<number>;
  close(): Promise<unknown>;
}

/** As many as go into one append. */
const GROUP = 250;

export async function startAppending(registry: BenchRegistry, owner: Pool): Promise<Appending> {
  let heard: (message: AppenderMessage) => void = () => undefined;
  const child = startChild({
    file: builtFile('bench/growth/appender'),
    onMessage: (message) => heard(message as AppenderMessage),
  });
  const task: AppenderTask = {
    engineUrl: registry.roleUrl('svc_engine'),
    workerUrl: registry.roleUrl('svc_worker'),
    aepKeyFile: registry.keyFiles.aep,
    tenant: await whoAsks(registry, owner),
    group: GROUP,
  };
  child.send(task);
  await child.ready;
  const ended = child.exited.then((code) => {
    throw new Error(`what was to append ended with ${String(code)}`);
  });
  ended.catch(() => undefined);
  return {
    append: async (count) => {
      const before = cpuTimesOf(registry.postgresPid);
      const said = new Promise<AppenderMessage>((resolve) => (heard = resolve));
      const some: AppendSome = { count };
      child.send(some);
      const message = await Promise.race([said, ended]);
      if ('failed' in message) throw new Error(message.failed);
      const postgres = cpuSecondsBetween(before, cpuTimesOf(registry.postgresPid));
      return ((message.cpuSeconds + postgres) * 1e6) / count;
    },
    close: () => child.stop(),
  };
}
