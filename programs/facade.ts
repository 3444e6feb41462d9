import { createFacade } from '#api/public/facade';
import { httpSource } from '#api/public/snapshot/http-source';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { unreadProblem } from '#api/public/http/unread-request';
import { systemClock } from '#runtime/clock';
import { facadeConfig, type FacadeConfig } from '#runtime/config';
import { listen } from '#runtime/http-server';
import { reportReady, runProgram } from '#runtime/lifecycle';
import { pinning } from './pinning.js';

function sourceOf({ snapshotDir, snapshotUrl }: FacadeConfig): SnapshotSource {
  return snapshotDir === null ? httpSource(snapshotUrl ?? '') : directorySource(snapshotDir);
}

const code = await runProgram('facade', async (program) => {
  const { log } = program;
  const config = facadeConfig();
  const facade = pinning('LOG_VKEY or SNAPSHOT_VKEY', () =>
    createFacade({
      snapshotSource: sourceOf(config),
      logVkey: config.logVkeys,
      snapshotVkey: config.snapshotVkeys,
      windowProofs: config.windowProofs,
      publicUrl: config.publicUrl,
      clock: systemClock,
      log,
    }),
  );
  program.onStop(() => facade.close());
  await facade.start();
  const server = await listen(facade.handler, {
    host: config.bind,
    port: config.port,
    portVariable: 'PUBLIC_PORT',
    answerUnread: unreadProblem,
  });
  program.onStop(() => server.close());
  log.info({ url: server.url }, 'the public API serves');
  reportReady(server.url);
});
process.exit(code);
