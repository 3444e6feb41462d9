import { createPublicServer } from '#api/public/server';
import { httpSource } from '#api/public/snapshot/http-source';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { unreadProblem } from '#api/public/http/answer';
import { systemClock } from '#runtime/process/clock';
import type { FacadeConfig } from '#runtime/config';
import { listen } from '#runtime/http/server';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { openOps } from '#runtime/ops/ops';
import { publicMetrics } from '../metrics/http.js';
import { snapshotGauges } from '../metrics/snapshot.js';
import { pinning } from '../trust.js';

function sourceOf({ snapshotDir, snapshotUrl }: FacadeConfig): SnapshotSource {
  return snapshotDir === null ? httpSource(snapshotUrl ?? '') : directorySource(snapshotDir);
}

/** Serves the public API in this process, and resolves with its URL. */
export async function serve(config: FacadeConfig, program: ProgramContext): Promise<string> {
  const ops = await openOps('facade', config.ops, program);
  const publicServer = pinning('LOG_VKEY or SNAPSHOT_VKEY', () =>
    createPublicServer({
      snapshotSource: sourceOf(config),
      logVkey: config.logVkey,
      snapshotVkey: config.snapshotVkey,
      recentLookupLimit: config.recentLookupLimit,
      publicUrl: config.publicUrl,
      clock: systemClock,
      log: program.log,
      ...(ops.registry && { metrics: publicMetrics(ops.registry) }),
      stopping: program.signal,
    }),
  );
  if (ops.registry !== null) {
    snapshotGauges(ops.registry, systemClock, () => publicServer.poller.current?.opened ?? null);
  }
  program.onStop(() => publicServer.close());
  ops.readyWhen(() => publicServer.readiness());
  await publicServer.start();
  const server = await listen(publicServer.handler, {
    host: config.listenAddress,
    port: config.publicPort,
    portVariable: 'PUBLIC_PORT',
    drainDelayMs: config.drain.delayMs,
    answerUnread: unreadProblem,
  });
  program.onStop(() => server.close());
  return server.url;
}
