import { startChild, type Child } from '../service/child.js';
import { builtFile } from '../service/programs.js';
import type { BenchRegistry } from '../service/registry.js';
import type { Ticked, TickerTask } from './ticker-task.js';

/** A publisher in a process of its own that ticks when it is told to. */
export interface Ticking {
  child: Child;
  tick(): Promise<Ticked>;
}

export async function startTicking(
  registry: BenchRegistry,
  recentLookupLimit: number,
): Promise<Ticking> {
  let heard: (ticked: Ticked) => void = () => undefined;
  const child = startChild({
    file: builtFile('bench/growth/ticker'),
    onMessage: (message) => heard(message as Ticked),
  });
  const { snapshotDir, keyFiles, origin, snapshotName } = registry;
  const task: TickerTask = {
    databaseUrl: registry.roleUrl('svc_publisher'),
    snapshotDir,
    logKeyFile: keyFiles.log,
    snapshotKeyFile: keyFiles.snapshot,
    origin,
    snapshotName,
    recentLookupLimit,
  };
  child.send(task);
  await child.ready;
  return {
    child,
    tick: () =>
      new Promise((resolve, reject) => {
        heard = resolve;
        void child.exited.then((code) =>
          reject(new Error(`the publisher ended with ${String(code)}`)),
        );
        child.send({});
      }),
  };
}
